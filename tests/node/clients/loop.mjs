// Clients of Kafka that are written in JavaScript, for a program that is not: `node loop.mjs`, with kafkajs.
//
// Each line of standard input is a JSON object; `do` says what. Each is answered by one line: an object, with `error`
// where it failed. Commands and answers are those of java/clients/ClientLoop.java. It ends with its input.
import { createInterface } from "node:readline";
import kafkajs from "kafkajs";

const { CompressionTypes, Kafka, logLevel } = kafkajs;
const MOST_MS = 90_000;
const A_REQUEST = 200; // records: what send() takes is one request
const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP };

const bytes = (text) => (text === null ? null : Buffer.from(text, "base64"));
const text = (data) => (data === null || data === undefined ? null : data.toString("base64"));
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function kafka({ settings }) {
    return new Kafka({
        brokers: [settings["bootstrap.servers"]],
        logLevel: logLevel.NOTHING,
        retry: { initialRetryTime: 20, retries: 20, maxRetryTime: 500 },
    });
}

/** What it says of a client that is connected for it alone. */
async function use(client, ask) {
    await client.connect();
    try {
        return await ask(client);
    } finally {
        await client.disconnect();
    }
}

/** Fails where it does not come true in time. */
async function until(what, holds) {
    for (const end = Date.now() + MOST_MS; !holds(); await pause(5)) {
        if (Date.now() > end) throw new Error(`it never comes that ${what}`);
    }
}

/** The headers of one name are a list; a time that is missing is this clock's, as the library's would be, to tell it. */
function message([key, value, timestamp, headers], partition) {
    const named = {};
    for (const [name, data] of headers) (named[name] ??= []).push(bytes(data));
    return { key: bytes(key), value: bytes(value), partition, timestamp: String(timestamp ?? Date.now()), headers: named };
}

function row(partition, { offset, key, value, timestamp, headers }) {
    const flat = Object.entries(headers).flatMap(([name, data]) => [data].flat().map((one) => [name, text(one)]));
    return [partition, Number(offset), text(key), text(value), Number(timestamp), null, flat];
}

/** The answer tells the first offset of the request, and the broker's time where that is what is stored. */
async function produce({ settings, topic, partition, records }) {
    const idempotent = settings["enable.idempotence"];
    const client = kafka({ settings }).producer({ idempotent, maxInFlightRequests: 1 });
    const sends = await use(client, async (producer) => {
        const sends = [];
        for (let at = 0; at < records.length; at += A_REQUEST) {
            const messages = records.slice(at, at + A_REQUEST).map((one) => message(one, partition));
            const compression = CODECS[settings["compression.type"]];
            const [sent] = await producer.send({ topic, messages, acks: -1, compression });
            const time = Number(sent.logAppendTime);
            messages.forEach((one, number) => sends.push([Number(sent.baseOffset) + number, time < 0 ? Number(one.timestamp) : time]));
        }
        return sends;
    });
    return { sends };
}

async function ends({ settings, topic, partition }) {
    const offsets = await use(kafka({ settings }).admin(), (admin) => admin.fetchTopicOffsets(topic));
    const { low, high } = offsets.find((one) => one.partition === partition);
    return { beginning: Number(low), end: Number(high) };
}

function consumer({ settings }, groupId) {
    return kafka({ settings }).consumer({
        groupId,
        heartbeatInterval: 100,
        sessionTimeout: 10_000,
        maxBytesPerPartition: 100_000,
        maxWaitTimeInMs: 10,
    });
}

/** In a group of its own, as the library has no other way. */
async function consume(asked) {
    const { beginning, end } = await ends(asked);
    if (beginning === end) return { rows: [] };
    const rows = await use(consumer(asked, `reader-${process.hrtime.bigint()}`), async (client) => {
        const rows = [];
        await client.subscribe({ topics: [asked.topic], fromBeginning: true });
        await client.run({
            autoCommit: false,
            eachMessage: async ({ partition, message }) => {
                if (partition === asked.partition) rows.push(row(partition, message));
            },
        });
        await until(`${asked.topic} is read to ${end}`, () => rows.length > 0 && rows.at(-1)[1] >= end - 1);
        return rows;
    });
    return { rows };
}

/** The library gives the end where it finds nothing, and no times. */
async function times(asked) {
    const { end } = await ends(asked);
    const answers = await use(kafka(asked).admin(), async (admin) => {
        const answers = [];
        for (const target of asked.targets) {
            const offsets = await admin.fetchTopicOffsetsByTimestamp(asked.topic, target);
            const offset = Number(offsets.find((one) => one.partition === asked.partition).offset);
            answers.push(offset === end ? null : [offset, null]);
        }
        return answers;
    });
    return { answers };
}

async function committed({ settings, topic, partitions }) {
    const groupId = settings["group.id"];
    const [found] = await use(kafka({ settings }).admin(), (admin) => admin.fetchOffsets({ groupId, topics: [topic] }));
    const offsets = Array(partitions).fill(null);
    for (const { partition, offset } of found.partitions) offsets[partition] = Number(offset) < 0 ? null : Number(offset);
    return { offsets };
}

let group = [];

async function join(asked) {
    group = [];
    for (let number = 0; number < asked.members; number++) {
        const client = consumer(asked, asked.settings["group.id"]);
        const member = { client, rows: [], assigned: 0, ends: new Map() };
        group.push(member);
        client.on(client.events.GROUP_JOIN, ({ payload }) => {
            member.assigned = (payload.memberAssignment[asked.topic] ?? []).length;
        });
        client.on(client.events.REBALANCING, () => {
            member.assigned = 0;
        });
        await client.connect();
        await client.subscribe({ topics: [asked.topic], fromBeginning: true });
        await client.run({
            autoCommit: false,
            eachMessage: async ({ topic, partition, message }) => {
                member.rows.push(row(partition, message));
                member.ends.set(partition, { topic, partition, offset: String(Number(message.offset) + 1) });
            },
        });
    }
    await until("every member has partitions", () => {
        const counts = group.map((member) => member.assigned);
        return counts.every((one) => one > 0) && counts.reduce((sum, one) => sum + one) === asked.partitions;
    });
    return {};
}

/** All commit before one leaves, which moves the others' partitions about. */
async function gather({ count }) {
    await until(`the members have ${count} records`, () => group.reduce((sum, one) => sum + one.rows.length, 0) >= count);
    for (const member of group) await member.client.commitOffsets([...member.ends.values()]);
    await Promise.all(group.map((member) => member.client.disconnect()));
    return { members: group.map((member) => member.rows) };
}

/** To make a producer of transactions begins none: the first one does. */
async function transaction({ settings }) {
    const transactionalId = settings["transactional.id"];
    await use(kafka({ settings }).producer({ transactionalId, idempotent: true, maxInFlightRequests: 1 }), async (producer) => {
        await (await producer.transaction()).abort();
    });
    return {};
}

const COMMANDS = { produce, consume, ends, times, committed, join, gather, transaction };

for await (const line of createInterface({ input: process.stdin })) {
    let answer;
    try {
        const asked = JSON.parse(line);
        answer = await COMMANDS[asked.do](asked);
    } catch (failed) {
        answer = { error: `${failed.name} ${failed.type ?? ""} ${failed.message}` };
    }
    process.stdout.write(`${JSON.stringify(answer)}\n`);
}
process.exit(0); // whatever a client still waits for
