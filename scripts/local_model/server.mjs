// Chat completions of one model over node-llama-cpp: text, answers of a schema, and tool calls where they are forced.
// Usage: node server.mjs MODEL.gguf PORT; port 0 takes a free one. Prints "listening PORT" when it serves.
import http from "node:http";
import { getLlama, LlamaChat } from "node-llama-cpp";

const CONTEXT_TOKENS = 4096;
const ANSWER_TOKENS = 256;
const ARGUMENT_CHARS = 8;
const [, , modelPath, port] = process.argv;

const threads = Number(process.env.THREADS ?? 1);
const llama = await getLlama({ build: "never", gpu: false, logLevel: "error", maxThreads: threads });
const model = await llama.loadModel({ modelPath });
const context = await model.createContext({ contextSize: CONTEXT_TOKENS, threads });
const sequence = context.getSequence();
const chat = new LlamaChat({ contextSequence: sequence });
let nextId = 0;

function textOf(content) {
    return typeof content === "string" ? content : (content ?? []).map((part) => part.text ?? "").join("");
}

// The conversation as the library wants it: the results of calls stand beside the calls.
function historyOf(messages) {
    const results = Object.fromEntries(messages.filter((m) => m.role === "tool").map((m) => [m.tool_call_id, m.content]));
    const history = [];
    for (const message of messages) {
        const text = textOf(message.content);
        if (message.role === "system" || message.role === "developer") history.push({ type: "system", text });
        if (message.role === "user") history.push({ type: "user", text });
        if (message.role === "assistant") {
            const calls = (message.tool_calls ?? []).map((call) => ({
                type: "functionCall",
                name: call.function.name,
                params: JSON.parse(call.function.arguments || "{}"),
                result: results[call.id] ?? null,
            }));
            history.push({ type: "model", response: text ? [text, ...calls] : calls });
        }
    }
    if (history.at(-1)?.type !== "model") history.push({ type: "model", response: [] });
    return history;
}

// The tools that an answer must call one of; empty where it need not.
function forcedTools(request) {
    const tools = (request.tools ?? []).map((tool) => tool.function);
    if (request.tool_choice === "required") return tools;
    const name = request.tool_choice?.function?.name;
    return tools.filter((tool) => tool.name === name);
}

async function callTool(request, tools, options, say) {
    const shapes = tools.map((tool) => ({
        type: "object",
        properties: { name: { const: tool.name }, arguments: tool.parameters },
    }));
    const grammar = await llama.createGrammarForJsonSchema(shapes.length === 1 ? shapes[0] : { oneOf: shapes });
    const history = historyOf(request.messages);
    history.unshift({ type: "system", text: `Reply with a JSON call of one of these functions: ${JSON.stringify(tools)}` });
    const { response, metadata } = await chat.generateResponse(history, { ...options, grammar });
    if (metadata.stopReason === "maxTokens" || metadata.stopReason === "abort") return "length";
    const call = grammar.parse(response);
    const text = JSON.stringify(call.arguments ?? {});
    const id = `call_${++nextId}`;
    say({ tool_calls: [{ index: 0, id, type: "function", function: { name: call.name, arguments: "" } }] });
    for (let at = 0; at < text.length; at += ARGUMENT_CHARS)
        say({ tool_calls: [{ index: 0, function: { arguments: text.slice(at, at + ARGUMENT_CHARS) } }] });
    return "tool_calls";
}

// Says the answer in deltas and returns why it ends.
async function answer(request, signal, say) {
    const options = {
        temperature: request.temperature ?? 0,
        maxTokens: request.max_tokens ?? request.max_completion_tokens ?? ANSWER_TOKENS,
        signal,
        stopOnAbortSignal: true,
    };
    const tools = forcedTools(request);
    if (tools.length) return callTool(request, tools, options, say);
    const schema = request.response_format?.json_schema?.schema;
    if (schema) options.grammar = await llama.createGrammarForJsonSchema(schema);
    const onTextChunk = (content) => say({ content });
    const { metadata } = await chat.generateResponse(historyOf(request.messages), { ...options, onTextChunk });
    return metadata.stopReason === "maxTokens" ? "length" : "stop";
}

async function serve(request, response, signal) {
    const head = { id: `chatcmpl-${++nextId}`, object: "chat.completion.chunk", created: Math.floor(Date.now() / 1000) };
    const send = (fields) => response.write(`data: ${JSON.stringify({ ...head, model: request.model, ...fields })}\n\n`);
    const say = (delta, reason = null) => send({ choices: [{ index: 0, delta, finish_reason: reason }] });
    const before = sequence.tokenMeter.getState();
    response.setHeader("content-type", "text/event-stream");
    try {
        say({ role: "assistant", content: "" });
        say({}, await answer(request, signal, say));
        const after = sequence.tokenMeter.getState();
        const prompt_tokens = after.usedInputTokens - before.usedInputTokens;
        const completion_tokens = after.usedOutputTokens - before.usedOutputTokens;
        send({ choices: [], usage: { prompt_tokens, completion_tokens, total_tokens: prompt_tokens + completion_tokens } });
        response.write("data: [DONE]\n\n");
    } catch (error) {
        send({ error: { message: String(error?.message ?? error), type: "server_error" } });
    }
    response.end();
}

// One answer after another: there is one sequence of tokens. `aborted` counts answers whose reader left.
let turn = Promise.resolve();
let aborted = 0;
const server = http.createServer((request, response) => {
    if (request.url === "/stats") return response.end(JSON.stringify({ aborted }));
    if (request.url !== "/v1/chat/completions") return response.writeHead(404).end("{}");
    const chunks = [];
    request.on("data", (chunk) => chunks.push(chunk));
    request.on("end", () => {
        const stop = new AbortController();
        response.on("close", () => {
            if (response.writableFinished) return;
            aborted += 1;
            stop.abort();
        });
        turn = turn.then(() => serve(JSON.parse(Buffer.concat(chunks).toString()), response, stop.signal));
        turn = turn.catch((error) => response.destroy(error));
    });
});
server.listen(Number(port), "127.0.0.1", () => console.log(`listening ${server.address().port}`));
