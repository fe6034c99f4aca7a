// graphile-worker and pg-boss:  node node.mjs graphile|pgboss schema|client|worker URL
// BENCH_NODE is the directory whose node_modules has them, BENCH_BOARD the board, BENCH_SLOTS its length.
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import readline from "node:readline";

const require = createRequire(path.join(process.env.BENCH_NODE, "bench.js"));
const [kind, action, url] = process.argv.slice(2);
const slots = Number(process.env.BENCH_SLOTS);
const board = action === "schema" ? -1 : fs.openSync(process.env.BENCH_BOARD, "r+");
const eight = Buffer.alloc(8);

function write(slot) {
  eight.writeBigInt64LE(process.hrtime.bigint());
  fs.writeSync(board, eight, 0, 8, slot * 8);
}
const body = (number) => write(slots + number);
const asked = (number) => write(number);
function began(number) {
  fs.readSync(board, eight, 0, 8, (slots + number) * 8);
  return eight.readBigInt64LE() !== 0n;
}
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const numbers = (first, count) => Array.from({ length: count }, (_, at) => first + at);

async function serve(one, bulk) {
  const answer = (seconds) => process.stdout.write(JSON.stringify({ seconds }) + "\n");
  answer(0);
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { do: what, first, count, pause = 0.03 } = JSON.parse(line);
    const started = process.hrtime.bigint();
    for (const number of what === "bulk" ? [] : numbers(first, count)) {
      if (what === "latency") asked(number);
      await one(number);
      if (what === "latency") {
        for (let left = 20000; left > 0 && !began(number); left--) await sleep(1);
        await sleep(10 + Math.random() * 1000 * pause);
      }
    }
    for (let at = first; what === "bulk" && at < first + count; at += 1000) {
      await bulk(numbers(at, Math.min(1000, first + count - at)));
    }
    answer(Number(process.hrtime.bigint() - started) / 1e9);
  }
}

async function graphile() {
  const { Logger, makeWorkerUtils, run } = require("graphile-worker");
  const logger = new Logger(() => () => {});
  if (action === "worker") {
    const fast = { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
    const runner = await run({
      taskList: { noop: async (payload) => body(payload.n) },
      preset: { worker: { connectionString: url, concurrentJobs: 24, maxPoolSize: 12, pollInterval: 2000, logger, ...fast } },
    });
    return runner.promise;
  }
  const utils = await makeWorkerUtils({ connectionString: url, logger });
  if (action === "schema") await utils.migrate();
  else
    await serve(
      (number) => utils.addJob("noop", { n: number }),
      (many) => utils.addJobs(many.map((n) => ({ identifier: "noop", payload: { n } }))),
    );
  return utils.release();
}

async function pgboss() {
  const PgBoss = require("pg-boss");
  const boss = new PgBoss({ connectionString: url, schedule: false, max: 12 });
  boss.on("error", () => {});
  await boss.start();
  await boss.createQueue("noop");
  if (action === "worker") {
    const options = { batchSize: 5000, pollingIntervalSeconds: 0.5 };
    return boss.work("noop", options, async (jobs) => jobs.forEach((job) => body(job.data.n)));
  }
  if (action === "client")
    await serve(
      (number) => boss.send("noop", { n: number }),
      (many) => boss.insert(many.map((n) => ({ name: "noop", data: { n } }))),
    );
  return boss.stop({ graceful: false, wait: true });
}

await { graphile, pgboss }[kind]();
if (action !== "worker") process.exit(0);
