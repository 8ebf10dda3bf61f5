// A walk through a cluster by @platformatic/kafka: administration, codecs, offsets, groups of both protocols,
// transactions.
// Each step is a line of JSON on stdout, without what differs from run to run, so that the same walk on two brokers can
// be compared line by line. Of an error it has the codes.
//
//   node walk.mjs BOOTSTRAP
import { createRequire } from "node:module";

const { Admin, Consumer, Producer, stringDeserializers, stringSerializers } = createRequire(
  `${process.env.NODE_PATH}/`,
)("@platformatic/kafka");

const topic = "walk-of-platformatic";
const options = { clientId: "walk", bootstrapBrokers: process.argv[2].split(","), retries: 20, retryDelay: 50 };

function say(step, result) {
  console.log(JSON.stringify([step, result], (_, value) => (typeof value === "bigint" ? Number(value) : value)));
}

function codes(error) {
  if (error.apiId) return error.apiId;
  return (error.errors ?? [error.cause]).filter(Boolean).map(codes).flat();
}

async function attempt(step, action, view = () => null) {
  try {
    say(step, view(await action()));
  } catch (error) {
    say(step, { errors: codes(error) });
  }
}

const admin = new Admin(options);

async function administer() {
  // It keeps them for 31 years: the records are of 2023.
  const create = { topics: [topic], partitions: 4, replicas: 1, configs: [{ name: "retention.ms", value: "1000000000000" }] };
  await attempt("create", () => admin.createTopics(create), (made) => made.map((one) => [one.name, one.partitions]));
  await attempt("create it again", () => admin.createTopics(create));
  await attempt("too many replicas", () => admin.createTopics({ topics: ["bad"], partitions: 1, replicas: 9 }));
  await attempt("bad name", () => admin.createTopics({ topics: ["a/b"], partitions: 1, replicas: 1 }));
  await attempt("list", () => admin.listTopics(), (names) => names.includes(topic));
  await attempt("grow", () => admin.createPartitions({ topics: [{ name: topic, count: 5, assignments: null }] }));
  await attempt("shrink", () => admin.createPartitions({ topics: [{ name: topic, count: 2, assignments: null }] }));
  const resource = { resourceType: 2, resourceName: topic };
  const set = (name, value) => ({ resources: [{ ...resource, configs: [{ name, value, configOperation: 0 }] }] });
  await attempt("set a config", () => admin.incrementalAlterConfigs(set("retention.ms", "2000000000000")));
  await attempt("set a bad config", () => admin.incrementalAlterConfigs(set("retention.ms", "much")));
  await attempt(
    "describe configs",
    () => admin.describeConfigs({ resources: [{ ...resource, configurationKeys: ["retention.ms", "cleanup.policy"] }] }),
    ([found]) => found.configs.map((one) => [one.name, one.value, one.configSource, one.readOnly, one.isSensitive]),
  );
  await attempt("log dirs", () => admin.describeLogDirs({ topics: [{ name: topic, partitions: [0] }] }), (dirs) => dirs.length);
}

async function write() {
  for (const compression of ["none", "gzip", "snappy", "lz4"]) {
    for (const idempotent of [false, true]) {
      const producer = new Producer({ ...options, serializers: stringSerializers, idempotent, compression });
      const messages = Array.from({ length: 20 }, (_, n) => ({
        topic, partition: n % 4, key: `k${n}`, value: `${compression}-${n}`, headers: { h: "1" }, timestamp: 1_700_000_000_000n,
      }));
      await attempt(
        `write ${compression} idempotent=${idempotent}`,
        () => producer.send({ messages, acks: -1 }),
        (sent) => sent.offsets.map((one) => [one.partition, one.offset]).sort(),
      );
      await producer.close();
    }
  }
  const producer = new Producer({ ...options, serializers: stringSerializers, retries: 0 });
  const large = [{ topic, partition: 0, value: "x".repeat(2 << 20) }];
  await attempt("too large", () => producer.send({ messages: large, acks: -1 }));
  await producer.close();
}

async function offsets() {
  const at = (timestamp) => ({ topics: [{ name: topic, partitions: [{ partitionIndex: 0, timestamp }] }] });
  for (const timestamp of [-2n, -1n, 1_600_000_000_000n, 1_800_000_000_000n]) {
    await attempt(
      `offset at ${timestamp}`,
      () => admin.listOffsets(at(timestamp)),
      ([found]) => found.partitions.map((one) => one.offset),
    );
  }
}

async function join(groupProtocol) {
  const groupId = `group-${groupProtocol}`;
  const own = groupProtocol === "consumer" ? {} : { sessionTimeout: 6000, heartbeatInterval: 100, rebalanceTimeout: 6000 };
  const members = [0, 1].map(
    () => new Consumer({ ...options, groupId, groupProtocol, ...own, deserializers: stringDeserializers, maxWaitTime: 50 }),
  );
  const seen = new Set();
  const streams = await Promise.all(
    members.map((one) => one.consume({ topics: [topic], mode: "committed", fallbackMode: "earliest", autocommit: true })),
  );
  await new Promise((resolve, reject) => {
    for (const stream of streams) {
      stream.on("error", reject);
      stream.on("data", (one) => {
        seen.add(`${one.partition} ${one.offset} ${one.key} ${one.value} ${one.headers.get("h")}`);
        if (seen.size === 160) resolve();
      });
    }
  });
  say(`${groupId} read`, seen.size);
  await attempt(
    `describe ${groupId}`,
    () => admin.describeGroups({ groups: [groupId] }),
    (groups) => [...groups.values()].map((one) => [one.id, one.protocolType]),
  );
  await attempt("delete while it runs", () => admin.deleteGroups({ groups: [groupId] }));
  for (const one of members) await one.close(true);
  await attempt(
    `committed by ${groupId}`,
    () => admin.listConsumerGroupOffsets({ groups: [groupId] }),
    ([group]) => group.topics.map((one) => one.partitions.map((p) => [p.partitionIndex, p.committedOffset]).sort()),
  );
  await attempt(`delete ${groupId}`, () => admin.deleteGroups({ groups: [groupId] }));
  await attempt("delete it again", () => admin.deleteGroups({ groups: [groupId] }));
}

async function transact() {
  const producer = new Producer({ ...options, serializers: stringSerializers, idempotent: true, transactionalId: "platformatic-walker" });
  for (const commits of [false, true]) {
    const transaction = await producer.beginTransaction();
    const messages = [{ topic, partition: 4, key: "k", value: `committed=${commits}` }];
    await attempt("send in a transaction", () => transaction.send({ messages, acks: -1 }), (sent) => sent.offsets.map((one) => one.offset));
    if (commits) await attempt("commit", () => transaction.commit());
    else await attempt("abort", () => transaction.abort());
  }
  await producer.close();
  const consumer = new Consumer({ ...options, groupId: "readers", deserializers: stringDeserializers, maxWaitTime: 50 });
  const stream = await consumer.consume({
    topics: [topic], mode: "manual", offsets: [0, 1, 2, 3].map((partition) => ({ topic, partition, offset: 40n })).concat([{ topic, partition: 4, offset: 0n }]),
    isolationLevel: 1, autocommit: false,
  });
  for await (const one of stream) {
    say("read committed", [one.partition, one.offset, one.value]);
    break;
  }
  await consumer.close(true);
}

async function end() {
  await attempt(
    "delete records",
    () => admin.deleteRecords({ topics: [{ name: topic, partitions: [{ partition: 0, offset: 10n }] }] }),
    ([found]) => found.partitions.map((one) => one.lowWatermark),
  );
  await attempt("delete topic", () => admin.deleteTopics({ topics: [topic] }));
  await admin.close();
}

await administer();
await write();
await offsets();
await join("classic");
await join("consumer");
await transact();
await end();
process.exit(0); // a closed client leaves a timer
