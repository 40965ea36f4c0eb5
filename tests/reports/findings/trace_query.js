// Loads a trace into Perfetto's trace processor and prints what it answers to queries.
//
//   node trace_query.js PERFETTO TRACE SQL... > answers.json
//
// PERFETTO is what scripts/fetch-perfetto prints: the WebAssembly module and its engine, as
// ui.perfetto.dev runs them in a worker of the browser. Prints an array with the rows of each query,
// each row an object by column. Exit status 1: the trace was refused, or a query was.
//
// The engine talks in messages of protos/perfetto/trace_processor/trace_processor.proto; the few
// fields used are written and read here, below "the wire".
'use strict';
const fs = require('fs');
const path = require('path');
const v8 = require('v8');
const vm = require('vm');

// Compile the module once, fast: optimising 11 MB takes four times as long as our queries.
v8.setFlagsFromString('--liftoff-only');

const APPEND_TRACE = 1, FINALIZE_TRACE = 2, QUERY = 3;  // TraceProcessorRpc.TraceProcessorMethod
const RPC = {seq: 1, request: 2, fatalError: 5, traceData: 101, queryArgs: 103, appendResult: 201,
             queryResult: 203, finalizeResult: 212};
const QUERY_RESULT = {columns: 1, error: 2, batch: 3};
const BATCH = {cells: 1, varints: 2, floats: 3, blobs: 4, strings: 5};
const CELL = {null: 1, varint: 2, float: 3, string: 4, blob: 5};

// --- the wire --------------------------------------------------------------------------------

function varint(value) {
  const out = [];
  for (; value > 127; value = Math.floor(value / 128)) out.push((value % 128) | 128);
  return Buffer.from([...out, value]);
}
const number = (field, value) => Buffer.concat([varint(field * 8), varint(value)]);
const bytes = (field, value) => Buffer.concat([varint(field * 8 + 2), varint(value.length), value]);

class Reader {
  constructor(buffer) { this.buffer = buffer; this.at = 0; }
  more() { return this.at < this.buffer.length; }
  varint() {
    let value = 0n;
    for (let shift = 0n;; shift += 7n) {
      const byte = this.buffer[this.at++];
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return BigInt.asIntN(64, value);
    }
  }
  take(length) { return this.buffer.subarray(this.at, this.at += length); }
  float() { return this.take(8).readDoubleLE(0); }
}

// The fields of a message as [number, value]; what has a length stays a buffer.
function* fields(buffer) {
  for (const reader = new Reader(buffer); reader.more();) {
    const key = Number(reader.varint());
    const type = key & 7;
    if (type !== 0 && type !== 1 && type !== 2) throw new Error(`wire type ${type}`);
    yield [key >> 3, type === 0 ? reader.varint() : type === 1 ? reader.float()
                     : reader.take(Number(reader.varint()))];
  }
}

// Text without a NUL at its end.
const text = buffer => buffer.toString('utf8');

// --- the engine ------------------------------------------------------------------------------

// Gives a function that sends requests, of which each is answered before it returns.
async function engine(folder) {
  const port = {};
  const worker = {
    console: {log: () => {}, warn: () => {}, error: console.error},
    setTimeout, clearTimeout, performance, TextDecoder, TextEncoder, URL,
    crypto: globalThis.crypto,
    WorkerGlobalScope: class {},
    location: {href: 'https://localhost/'},
    // How the engine reads its module.
    XMLHttpRequest: class {
      open(method, url) { this.file = path.join(folder, path.basename(url)); }
      send() { this.response = fs.readFileSync(this.file); }
    },
  };
  worker.self = worker;
  vm.createContext(worker);
  const script = path.join(folder, 'engine_bundle.js');
  vm.runInContext(fs.readFileSync(script, 'utf8'), worker, {filename: script});
  worker.onmessage({data: port});
  await new Promise(resolve => setTimeout(resolve));  // it gets ready in a microtask
  let replies;
  let seq = 0;
  port.postMessage = data => replies.push(Buffer.from(data));
  const Bytes = vm.runInContext('Uint8Array', worker);  // it takes no other context's
  return (method, ...more) => {
    replies = [];
    const message = Buffer.concat([number(RPC.seq, ++seq), number(RPC.request, method), ...more]);
    port.onmessage({data: Bytes.from(bytes(1, message))});
    const out = [];
    for (const [, reply] of fields(Buffer.concat(replies))) {
      for (const [field, value] of fields(reply)) {
        if (field === RPC.fatalError) throw new Error(text(value));
        out.push([field, value]);
      }
    }
    return out;
  };
}

function read(send, trace) {
  const check = answers => {
    for (const [field, value] of answers) {
      if (field !== RPC.appendResult && field !== RPC.finalizeResult) continue;
      for (const [part, error] of fields(value)) {
        const place = field === RPC.appendResult ? 2 : 1;
        if (part === place && Buffer.isBuffer(error)) throw new Error(text(error));
      }
    }
  };
  const chunk = Buffer.alloc(4 << 20);
  const file = fs.openSync(trace, 'r');
  for (let size; (size = fs.readSync(file, chunk)) > 0;)
    check(send(APPEND_TRACE, bytes(RPC.traceData, chunk.subarray(0, size))));
  fs.closeSync(file);
  check(send(FINALIZE_TRACE));
}

function* cells(batch) {
  const parts = {[BATCH.varints]: [], [BATCH.floats]: [], [BATCH.blobs]: [], [BATCH.strings]: []};
  let kinds = [];
  for (const [field, value] of fields(batch)) {
    if (field === BATCH.cells) kinds = value;
    if (field === BATCH.strings) parts[field] = text(value).split('\0');
    if (field === BATCH.blobs) parts[field].push(value.toString('hex'));
    if (field === BATCH.varints || field === BATCH.floats) {
      for (const reader = new Reader(value); reader.more();)
        parts[field].push(field === BATCH.floats ? reader.float() : Number(reader.varint()));
    }
  }
  const source = {[CELL.varint]: BATCH.varints, [CELL.float]: BATCH.floats,
                  [CELL.string]: BATCH.strings, [CELL.blob]: BATCH.blobs};
  const used = {};
  for (const kind of kinds) {
    const from = source[kind];
    yield kind === CELL.null ? null : parts[from][used[from] = (used[from] ?? -1) + 1];
  }
}

function query(send, sql) {
  const columns = [];
  const rows = [];
  let row = [];
  for (const [field, result] of send(QUERY, bytes(RPC.queryArgs, bytes(1, Buffer.from(sql))))) {
    if (field !== RPC.queryResult) continue;
    for (const [part, value] of fields(result)) {
      if (part === QUERY_RESULT.error) throw new Error(text(value));
      if (part === QUERY_RESULT.columns) columns.push(text(value));
      if (part !== QUERY_RESULT.batch) continue;
      for (const cell of cells(value)) {
        row.push([columns[row.length], cell]);
        if (row.length < columns.length) continue;
        rows.push(Object.fromEntries(row));
        row = [];
      }
    }
  }
  return rows;
}

async function main([folder, trace, ...queries]) {
  const send = await engine(folder);
  read(send, trace);
  process.stdout.write(JSON.stringify(queries.map(sql => query(send, sql))) + '\n');
}

main(process.argv.slice(2)).catch(error => {
  console.error('trace_query: ' + String(error.message).slice(0, 2000));
  process.exitCode = 1;
});
