// Drives the public client of trigger.dev against a service, and prints what each call returned as JSON.
import { batch, idempotencyKeys, runs, tags, tasks } from "@trigger.dev/sdk/v3";
import { apiClientManager, taskContext } from "@trigger.dev/core/v3";

const once = { retry: { maxAttempts: 1 } };
const seen = {};

async function step(name, work) {
  try {
    seen[name] = await work();
  } catch (error) {
    seen[name] = { refused: error.constructor.name, status: error.status, message: error.message };
  }
}

const key = await idempotencyKeys.create("order-1", { scope: "global" });
const payload = { when: new Date(0), n: 1 };
const options = { idempotencyKey: key, idempotencyKeyTTL: "1h", tags: ["a"], metadata: { m: 1 }, maxAttempts: 5 };
await step("trigger", () => tasks.trigger("hello", payload, options, once));
await step("again", () => tasks.trigger("hello", payload, { idempotencyKey: key }, once));
await step("text", () => tasks.trigger("hello you", "text", { delay: new Date(Date.now() + 3600000) }, once));
await step("nothing", () => tasks.trigger("hello", undefined, { delay: "1h" }, once));
await step("retrieve", () => runs.retrieve(seen.trigger.id, once));
await step("delayed", () => runs.retrieve(seen.text.id, once));

const items = [{ payload, options: { idempotencyKey: key } }, { payload: { x: 2 } }, { payload: "three", options: { tags: ["b"] } }];
await step("batchTrigger", () => tasks.batchTrigger("hello", items, {}, once));
await step("batch.trigger", () => batch.trigger([{ id: "hello", payload: 1 }, { id: "other", payload: 2 }], {}, once));
await step("batch.retrieve", () => batch.retrieve(seen.batchTrigger.batchId, once));

await step("list", async () => {
  const page = await runs.list({ limit: 2, status: ["QUEUED", "DELAYED"], taskIdentifier: ["hello", "other"] }, once);
  const ids = [];
  for await (const run of page) ids.push(run.id);
  return { data: page.data, ids };
});
await step("list.tag", async () => (await runs.list({ tag: ["b", "none"], period: "1h", from: new Date(0) }, once)).data);
await step("list.refused", () => runs.list({ schedule: "sched_1" }, once));

// tags.add and metadata are for code inside a run: this is the context that the runtime of trigger.dev gives it.
const place = { id: "x", slug: "x", name: "x", ref: "x", type: "DEVELOPMENT" };
taskContext.setGlobalTaskContext({
  ctx: {
    run: { id: seen.trigger.id, tags: [] }, attempt: { number: 1 }, task: { id: "hello", filePath: "" }, queue: place,
    environment: place, organization: place, project: place, machine: { name: "micro", cpu: 1, memory: 1, centsPerMs: 0 },
  },
  worker: { version: "1" },
});
await step("tags.add", () => tags.add(["c", "d"], once));
taskContext.disable();
const api = apiClientManager.clientOrThrow();
const operations = [{ type: "set", key: "k", value: 2 }, { type: "increment", key: "m", value: 3 }];
await step("metadata", () => api.updateRunMetadata(seen.trigger.id, { operations }, once));
await step("metadata.read", () => api.getRunMetadata(seen.trigger.id, once));

await step("cancel", () => runs.cancel(seen.trigger.id, once));
await step("canceled", () => runs.retrieve(seen.trigger.id, once));
await step("replay", () => runs.replay(seen.trigger.id, once));
await step("reset", () => idempotencyKeys.reset("hello", key, { scope: "global" }, once));
await step("after reset", () => tasks.trigger("hello", payload, { idempotencyKey: key }, once));

await step("worked", () => tasks.trigger("worked", { n: 20 }, {}, once));
await step("poll", () => runs.poll(seen.worked.id, { pollIntervalMs: 50 }, once));

// Large payloads, which version 4 uploads before it triggers: it never sends more than 128 KiB inline.
const large = { when: new Date(0), text: "x".repeat(200 * 1024) };
await step("large", () => tasks.trigger("large", large, { idempotencyKey: "large" }, once));
await step("large.again", () => tasks.trigger("large", large, { idempotencyKey: "large" }, once));
await step("large.read", async () => lengths(await runs.retrieve(seen.large.id, once)));
await step("larger", async () => {
  const run = await tasks.trigger("large", { text: "y".repeat(2 * 1024 * 1024) }, {}, once);
  return lengths(await runs.retrieve(run.id, once));
});
await step("too large", () => tasks.trigger("large", "z".repeat(5 * 1024 * 1024), {}, once));
await step("large.batch", async () => {
  const sent = await tasks.batchTrigger("large", [{ payload: large }, { payload: 1 }], {}, once);
  const found = sent.runs ?? (await batch.retrieve(sent.batchId, once)).runs;
  return lengths(await runs.retrieve(found[0].id ?? found[0], once));
});

function lengths(run) {
  return { when: run.payload.when, text: run.payload.text.length };
}

// The loop of version 3.3.17 does not end with the run, whatever the service answers.
const endless = process.env.ENDLESS === "yes";
async function watch(id) {
  const states = [];
  for await (const run of runs.subscribeToRun(id)) {
    states.push({ status: run.status, payload: run.payload, output: run.output, error: run.error?.message });
    if (endless && run.finishedAt) break;
  }
  return states;
}
const later = { delay: new Date(Date.now() + 2000) };
await step("watched", async () => watch((await tasks.trigger("worked", { n: 21 }, later, once)).id));
await step("watched.ended", async () => watch(seen.worked.id));
await step("watched.failed", async () => watch((await tasks.trigger("broken", {}, { maxAttempts: 1 }, once)).id));
await step("watched.unknown", () => watch(`run_${"a".repeat(39)}`));
await step("watched.batch", async () => {
  for await (const run of runs.subscribeToBatch(seen.batchTrigger.batchId)) return run;
});

await step("missing", () => runs.retrieve(`run_${"a".repeat(39)}`, once));
await step("invalid", () => tasks.trigger("hello", 1, { tags: [...Array(11).keys()].map(String) }, once));
console.log(JSON.stringify(seen));
process.exit(0);
