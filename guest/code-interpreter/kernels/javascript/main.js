// SPDX-License-Identifier: Apache-2.0
// main.js FD: runs the cells that come over FD, one line of JSON each, and says there what came of them.
//
// The engine's own console evaluates them (Runtime.evaluate in REPL mode): it knows await at the top level, and
// names that are declared again. A SIGINT ends a cell (sigint.js); what it left in promises and timers goes on.
'use strict';

const fs = require('node:fs');
const { Session } = require('node:inspector');
const net = require('node:net');
const path = require('node:path');
const readline = require('node:readline');
const { createRequire } = require('node:module');
const { Worker } = require('node:worker_threads');
const { pathToFileURL } = require('node:url');
const util = require('node:util');
const vm = require('node:vm');
const { translate } = require('./source.js');

const fd = Number(process.argv[2]);
const display = Symbol.for('Jupyter.display');
const session = new Session();
session.connect();

// What has a display method says itself in which forms it is shown.
function bundle(value) {
  if (value !== null && typeof value === 'object' && typeof value[display] === 'function') return value[display]();
  // The server takes the quotes off again.
  const shown = { 'text/plain': typeof value === 'string' ? `'${value}'` : util.inspect(value) };
  if (Array.isArray(value) || Object.prototype.toString.call(value) === '[object Object]') {
    try {
      const json = JSON.parse(JSON.stringify(value));
      if (json !== undefined) shown['application/json'] = json;
    } catch {
      // a circle: the text is all there is
    }
  }
  return shown;
}

// At once, and so in order with what is printed.
function send(message) {
  const data = Buffer.from(`${JSON.stringify(message)}\n`);
  for (let done = 0; done < data.length;) {
    try {
      done += fs.writeSync(fd, data, done);
    } catch (error) {
      // The kernel is about to read it.
      if (error.code !== 'EAGAIN') throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
    }
  }
}

function sendError(error) {
  if (util.types.isNativeError(error)) {
    const { name, message, stack, cubeTrace } = error;
    // without our own frames below the cell's
    const trace = String(cubeTrace ?? stack ?? message).replace(/\n +at Session\.post \(node:inspector[^]*/, '');
    send({ is: 'error', name: String(name), value: String(message), traceback: trace });
  } else {
    send({ is: 'error', name: 'Uncaught', value: util.inspect(error), traceback: util.inspect(error) });
  }
}

// Values of the inspector are handed to us by calling this with them.
let taken;
const hidden = { take(value) { taken = value; } };

function take(remote) {
  const argument = {};
  for (const key of ['objectId', 'unserializableValue', 'value']) if (remote[key] !== undefined) argument[key] = remote[key];
  session.post('Runtime.callFunctionOn', {
    objectId: hiddenId, functionDeclaration: 'function(value) { this.take(value); }', arguments: [argument],
  });
  const value = taken;
  taken = undefined;
  return value;
}

let interrupt = () => {}; // ends the wait for the cell that runs

// Resolves to what the cell's last expression is, rejects with what it threw.
function evaluate(source) {
  return new Promise((resolve, reject) => {
    interrupt = () => {
      const error = new Error('The cell was interrupted');
      error.name = 'KeyboardInterrupt';
      reject(error);
    };
    hidden.run = () => session.post('Runtime.evaluate', {
      expression: source, replMode: true, awaitPromise: true, objectGroup: 'cell',
    }, (error, answer) => {
      if (error) reject(new Error(error.message));
      else if (!answer.exceptionDetails) resolve(take(answer.result));
      else if (answer.exceptionDetails.exception) reject(take(answer.exceptionDetails.exception));
      else reject(new Error(answer.exceptionDetails.text));
    });
    try {
      vm.runInThisContext('__cube.run()', { breakOnSigint: true });
    } catch (error) {
      if (error.code !== 'ERR_SCRIPT_EXECUTION_INTERRUPTED') throw error;
      interrupt();
    }
  });
}

function setEnv(env) {
  const before = Object.keys(env).map((name) => [name, process.env[name]]);
  Object.assign(process.env, env);
  return () => {
    for (const [name, value] of before) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
  };
}

async function run({ code, language, env }) {
  const restoreEnv = setEnv(env);
  try {
    const value = await evaluate(translate(code, language));
    if (value !== undefined) send({ is: 'result', data: bundle(value) });
  } catch (error) {
    sendError(error);
  }
  interrupt = () => {};
  restoreEnv();
  session.post('Runtime.releaseObjectGroup', { objectGroup: 'cell' });
  send({ is: 'done' });
}

// Cells import as a module in the working directory would.
const cellRequire = createRequire(path.join(process.cwd(), 'cell.js'));
function importModule(specifier) {
  const name = String(specifier);
  if (/^\.{0,2}\//.test(name)) return import(pathToFileURL(path.resolve(name)).href);
  let found = name;
  try {
    const resolved = cellRequire.resolve(name);
    if (path.isAbsolute(resolved)) found = pathToFileURL(resolved).href;
  } catch {
    // what only the loader of modules finds, or nobody: it says so
  }
  return import(found);
}

function hide(name, value) {
  Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
}
hide('require', cellRequire);
hide('display', (value) => send({ is: 'display', data: bundle(value) }));
hide('__cubeImport', importModule);
hide('__cube', hidden);
let hiddenId;
session.post('Runtime.evaluate', { expression: '__cube' }, (error, answer) => { hiddenId = answer.result.objectId; });

// Of those that come while no cell holds this thread.
const sigints = new Worker(path.join(__dirname, 'sigint.js'));
sigints.on('message', () => interrupt());
process.on('uncaughtException', (error) => console.error(error));
process.on('unhandledRejection', (error) => console.error(error));
// It would wait for the debugger, which we are.
process.on('exit', () => session.disconnect());

// Before that a SIGINT would end us.
sigints.once('message', () => {
  sigints.unref();
  readline.createInterface({ input: new net.Socket({ fd, readable: true, writable: false }) })
    .on('line', (line) => run(JSON.parse(line)))
    .on('close', () => process.exit());
});
