// A producer and a consumer by kafkajs. Records are lines "key\tvalue": on stdin to write, on stdout as they are read.
//
//   node peer.js '{"bootstrap": "...", "topic": "...", "role": "write", "codec": "gzip", "idempotent": true,
//                  "partition": 0, "transaction": "", "batch": 500}'
//   node peer.js '{"bootstrap": "...", "topic": "...", "role": "read", "count": 100, "group": "g"}'
//
// Without "partition" keys choose it. `batch` records make a request for each partition, or a transaction. A member
// commits what it has read, and leaves.
"use strict";
const { CompressionTypes, Kafka, logLevel } = require("kafkajs");

const chosen = { batch: 500, codec: "none", ...JSON.parse(process.argv[2]) };
const kafka = new Kafka({
  clientId: "peer",
  brokers: chosen.bootstrap.split(","),
  logLevel: logLevel.ERROR,
});

async function lines() {
  let text = "";
  for await (const chunk of process.stdin) text += chunk;
  return text.split("\n").slice(0, -1).map((line) => {
    const tab = line.indexOf("\t");
    const record = { key: line.slice(0, tab), value: line.slice(tab + 1) };
    return chosen.partition == null ? record : { ...record, partition: chosen.partition };
  });
}

async function write() {
  const options = { allowAutoTopicCreation: false, idempotent: chosen.idempotent, maxInFlightRequests: 1 };
  const producer = kafka.producer(
    chosen.transaction ? { ...options, idempotent: true, transactionalId: chosen.transaction } : options,
  );
  const records = await lines();
  const compression = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP }[chosen.codec];
  await producer.connect();
  for (let start = 0; start < records.length; start += chosen.batch) {
    const messages = records.slice(start, start + chosen.batch);
    const sender = chosen.transaction ? await producer.transaction() : producer;
    await sender.send({ topic: chosen.topic, messages, acks: -1, compression });
    if (chosen.transaction) await sender.commit();
  }
  await producer.disconnect();
}

async function read() {
  const consumer = kafka.consumer({ groupId: chosen.group, readUncommitted: false });
  await consumer.connect();
  await consumer.subscribe({ topics: [chosen.topic], fromBeginning: true });
  let found = 0;
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, (event) => reject(event.payload.error));
    const each = async ({ batch, resolveOffset, commitOffsetsIfNecessary }) => {
      for (const one of batch.messages) {
        process.stdout.write(`${one.key}\t${one.value}\n`);
        resolveOffset(one.offset);
        found += 1;
      }
      await commitOffsetsIfNecessary();
      if (found >= chosen.count) resolve();
    };
    consumer.run({ autoCommit: true, eachBatch: each }).catch(reject);
  });
  await consumer.disconnect();
}

(chosen.role === "write" ? write() : read()).then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
