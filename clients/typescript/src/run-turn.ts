// Runs one turn and prints what happens: node dist/run-turn.js TARGET AGENT TEXT.
import { randomUUID } from "node:crypto";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { TurnService } from "./gen/turnwire/api/runtime/v1/turn_service_pb.js";
import { TurnState } from "./gen/turnwire/api/runtime/v1/turn_pb.js";

const [target, agent, text] = process.argv.slice(2);
if (!target || !agent || !text) throw new Error("usage: node dist/run-turn.js TARGET AGENT TEXT");

const client = createClient(TurnService, createGrpcTransport({ baseUrl: `http://${target}` }));
const input = { parts: [{ content: { case: "text" as const, value: { text } } }] };
const spec = { agent, newThread: {}, work: { case: "input" as const, value: input } };
for await (const response of client.runTurn({ requestId: randomUUID(), spec })) {
  for (const { event, turn } of response.events) {
    if (event.case === "llm" && event.value.event.case === "textDelta") {
      process.stdout.write(event.value.event.value.text);
    } else if (event.case === "toolCallFinished") {
      console.log(`[${event.value.toolName}: ${event.value.content}]`);
    } else if (event.case === "turnFinished") {
      console.log(`\n${turn} ${TurnState[event.value.state]}`);
    }
  }
}
