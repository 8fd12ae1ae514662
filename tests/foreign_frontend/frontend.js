// A frontend in another language, written from docs/protocol.md alone:
//   HTMCP_BROKER_FD=N node frontend.js COMMAND...
// runs each COMMAND, all at once, prints one JSON envelope a line in the order of the commands, and exits with 0 if all
// were `ok`, 1 if one was not, 2 if the broker broke off.
"use strict";
const net = require("node:net");

function pack(value) {
  if (value === null) return Buffer.from([0xc0]);
  if (typeof value === "boolean") return Buffer.from([value ? 0xc3 : 0xc2]);
  if (typeof value === "number") {
    const integer = Buffer.alloc(9, 0xd3);
    integer.writeBigInt64BE(BigInt(value), 1);
    return integer;
  }
  const head = Buffer.alloc(5);
  if (typeof value === "string") {
    const text = Buffer.from(value, "utf8");
    head[0] = 0xdb;
    head.writeUInt32BE(text.length, 1);
    return Buffer.concat([head, text]);
  }
  const pairs = Object.entries(value);
  head[0] = 0xdf;
  head.writeUInt32BE(pairs.length, 1);
  return Buffer.concat([head, ...pairs.flat().map(pack)]);
}

class Reader {
  constructor(body) {
    this.body = body;
    this.at = 0;
  }
  number(size, signed) {
    this.at += size;
    if (size === 8) return Number(signed ? this.body.readBigInt64BE(this.at - 8) : this.body.readBigUInt64BE(this.at - 8));
    return signed ? this.body.readIntBE(this.at - size, size) : this.body.readUIntBE(this.at - size, size);
  }
  text(size) {
    this.at += size;
    return this.body.toString("utf8", this.at - size, this.at);
  }
  list(count) {
    return Array.from({ length: count }, () => this.value());
  }
  map(count) {
    return Object.fromEntries(Array.from({ length: count }, () => [this.value(), this.value()]));
  }
  value() {
    const kind = this.number(1, false);
    if (kind < 0x80) return kind;
    if (kind < 0x90) return this.map(kind & 0x0f);
    if (kind < 0xa0) return this.list(kind & 0x0f);
    if (kind < 0xc0) return this.text(kind & 0x1f);
    if (kind >= 0xe0) return kind - 0x100;
    switch (kind) {
      case 0xc0: return null;
      case 0xc2: return false;
      case 0xc3: return true;
      case 0xcc: case 0xcd: case 0xce: case 0xcf: return this.number(1 << (kind - 0xcc), false);
      case 0xd0: case 0xd1: case 0xd2: case 0xd3: return this.number(1 << (kind - 0xd0), true);
      case 0xd9: case 0xda: case 0xdb: return this.text(this.number(1 << (kind - 0xd9), false));
      case 0xdc: case 0xdd: return this.list(this.number(2 << (kind - 0xdc), false));
      case 0xde: case 0xdf: return this.map(this.number(2 << (kind - 0xde), false));
      default: throw new Error(`msgpack type ${kind}`);
    }
  }
}

const broker = new net.Socket({ fd: Number(process.env.HTMCP_BROKER_FD) });
const commands = process.argv.slice(2);
const results = new Map();
let next = 0;
let bytes = Buffer.alloc(0);

function send(message) {
  const body = pack(message);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(body.length);
  broker.write(Buffer.concat([length, body]));
}

function runNext() {
  if (next < commands.length) {
    next += 1;
    send({ type: "run", id: next, command: commands[next - 1], cwd: null });
  }
}

function finish() {
  const envelopes = commands.map((_, index) => results.get(index + 1));
  process.stdout.write(envelopes.map((envelope) => JSON.stringify(envelope) + "\n").join(""), () =>
    process.exit(envelopes.every((envelope) => envelope.ok) ? 0 : 1));
}

function take(message) {
  if (message.type === "welcome") {
    for (let free = message.in_flight; free > 0; free -= 1) runNext();
  } else if (message.type === "result") {
    results.set(message.id, message.result);
    if (results.size === commands.length) finish();
    else runNext();
  } else if (message.type === "refusal") {
    process.stderr.write(`refused: ${message.reason}\n`);
    process.exit(2);
  }
}

broker.on("data", (data) => {
  bytes = Buffer.concat([bytes, data]);
  while (bytes.length >= 4 && bytes.length >= 4 + bytes.readUInt32BE(0)) {
    const end = 4 + bytes.readUInt32BE(0);
    take(new Reader(bytes.subarray(4, end)).value());
    bytes = bytes.subarray(end);
  }
});
broker.on("error", () => process.exit(2));
broker.on("close", () => process.exit(2));
send({ type: "hello", version: 1, frontend: "node" });
