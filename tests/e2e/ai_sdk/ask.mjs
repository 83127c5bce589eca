// Asks with the AI SDK. Reads requests from stdin, [{ url, model, stream, timeout_ms }], runs all of them side by side, and
// writes what the SDK's user sees of each: [{ kind, status, message }].
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";

async function ask({ url, model, stream, timeout_ms }) {
  const provider = createOpenAICompatible({ name: "upstream", baseURL: `${url}/v1`, apiKey: "sk-x" });
  const asked = { model: provider(model), prompt: "hello", abortSignal: AbortSignal.timeout(timeout_ms) };
  if (!stream) {
    await generateText(asked);
    return;
  }
  for await (const part of streamText({ ...asked, onError: () => {} }).fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "abort") throw new DOMException("the stream was aborted", "AbortError");
  }
}

async function seen(request) {
  try {
    await ask(request);
    return { kind: "", status: null, message: "" };
  } catch (error) {
    // After several tries the SDK raises a RetryError, which holds the errors of all of them.
    const last = error.lastError ?? error;
    const kind = error === last ? last.name : `${error.name}: ${last.name}`;
    return { kind: kind ?? typeof error, status: last.statusCode ?? null, message: last.message ?? JSON.stringify(error) };
  }
}

let text = "";
for await (const chunk of process.stdin) text += chunk;
console.log(JSON.stringify(await Promise.all(JSON.parse(text).map(seen))));
