"""The demo's own tool: a command that is slower than its limit of one second."""

from turnwire.extend.tools import command_tool

slow_report = command_tool(
    "slow_report",
    shell="for page in $(seq 1 30); do echo page $page of the report; sleep 0.3; done",
    description="Write a report of thirty pages, slowly.",
    timeout=1.0,
    cancel_note="The report was stopped; pages already written stay.",
)
