"""A tool of your own. Start with `turnwire up --tools examples/first_tool.py`, then try it:

turnwire run --agent demo 'call shout {"text": "hello"}'
"""

from turnwire.extend.tools import tool


@tool
def shout(text: str) -> str:
    """Say a text in capitals."""
    return text.upper()
