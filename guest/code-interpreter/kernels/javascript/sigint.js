// SPDX-License-Identifier: Apache-2.0
// A thread that takes each SIGINT that no cell takes, and tells the main thread of it.
//
// A handler of process.on() is of no use here: breakOnSigint, which ends a cell that holds the main thread, takes such
// handlers away and puts them back, and a SIGINT in between ends the process. The engine gives a signal to who began last
// to wait for it. So this thread always waits, twice over: the outer wait is there while the inner one begins anew.
'use strict';

const vm = require('node:vm');
const { parentPort } = require('node:worker_threads');

const never = new Int32Array(new SharedArrayBuffer(4));
const waits = {
  inner() { Atomics.wait(never, 0, 0); },
  outer() { forEver('inner'); },
};
Object.defineProperty(globalThis, '__cubeWaits', { value: waits });

function forEver(name) {
  for (let first = true; ; first = false) {
    // the first word is that it waits
    if (name === 'inner' || !first) parentPort.postMessage(name);
    try {
      vm.runInThisContext(`__cubeWaits.${name}()`, { breakOnSigint: true });
    } catch (error) {
      if (error.code !== 'ERR_SCRIPT_EXECUTION_INTERRUPTED') throw error;
    }
  }
}

forEver('outer');
