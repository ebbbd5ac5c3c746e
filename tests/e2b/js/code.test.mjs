// SPDX-License-Identifier: Apache-2.0
// The code interpreter: cells, their results and errors, languages, contexts.

import { after } from 'node:test'
import { assert, create, fails, load, test } from './load.mjs'

const { Sandbox, NotFoundError, TimeoutError } = await load('@e2b/code-interpreter')
const sandbox = await create(Sandbox)
after(() => sandbox.kill())

test('what a cell prints and what it is', async () => {
        const execution = await sandbox.runCode('x = 1; print("ä 🦊"); x')
        assert.deepEqual([execution.text, execution.logs.stdout, execution.error], ['1', ['ä 🦊\n'], undefined])
        const next = await sandbox.runCode('x += 1; x')
        assert.deepEqual([next.text, next.executionCount], ['2', execution.executionCount + 1])
})

test('an error in a cell is told', async () => {
        const { error } = await sandbox.runCode('nothing')
        assert.deepEqual([error.name, error.value], ['NameError', "name 'nothing' is not defined"])
        assert.ok(error.traceback.includes('NameError'))
})

test('callbacks come in their kinds', async () => {
        const out = [], err = [], results = [], errors = []
        await sandbox.runCode('import sys\nprint("o"); print("e", file=sys.stderr); display(1); nothing', {
                onStdout: (one) => out.push(one.line), onStderr: (one) => err.push(one.line),
                onResult: (one) => results.push(one.text), onError: (one) => errors.push(one.name) })
        assert.deepEqual([out, err, results, errors], [['o\n'], ['e\n'], ['1'], ['NameError']])
})

test('output is there while the cell runs', async () => {
        let first
        const seen = new Promise((resolve) => (first = resolve))
        const context = await sandbox.createCodeContext({ language: 'python' })
        const running = sandbox.runCode('import os, tempfile, time\nd = tempfile.mkdtemp()\nprint(d, flush=True)\n' +
                'while not os.path.exists(d + "/go"): time.sleep(0.1)\n"went"', { context, onStdout: (one) => first(one.line.trim()) })
        await sandbox.runCode(`open("${await seen}/go", "w").close()`)
        assert.equal((await running).text, 'went')
        await sandbox.removeCodeContext(context)
})

test('a table, a picture and its chart', async () => {
        const table = await sandbox.runCode('import pandas as pd\npd.DataFrame({"a": [1, 2, 3]})')
        assert.deepEqual(table.results[0].data, { a: [1, 2, 3] })
        const { results: [plot] } = await sandbox.runCode('import matplotlib.pyplot as plt\nplt.plot([1, 2], [3, 4])\nplt.title("T")\nplt.show()')
        assert.ok(plot.png)
        assert.deepEqual([plot.chart.type, plot.chart.title, plot.chart.elements[0].points], ['line', 'T', [[1, 3], [2, 4]]])
})

test('languages and variables', async () => {
        assert.deepEqual((await sandbox.runCode("console.log('Hello')", { language: 'js' })).logs.stdout, ['Hello\n'])
        assert.deepEqual((await sandbox.runCode("const m: string = 'Hello'; console.log(m)", { language: 'ts' })).logs.stdout, ['Hello\n'])
        assert.equal((await sandbox.runCode('echo $A', { language: 'bash', envs: { A: 'b' } })).logs.stdout.join(''), 'b\n')
        assert.equal((await sandbox.runCode('import os; os.getenv("A")', { envs: { A: 'b' } })).text, 'b')
        assert.equal((await sandbox.runCode('import os; os.getenv("A")')).text, undefined)
})

test('contexts', async () => {
        const languages = (await sandbox.listCodeContexts()).map((one) => one.language)
        assert.ok(languages.includes('python') && languages.includes('javascript'), languages)
        const context = await sandbox.createCodeContext({ language: 'python', cwd: '/tmp' })
        assert.deepEqual([context.language, context.cwd], ['python', '/tmp'])
        assert.equal((await sandbox.runCode('y = 5\nimport os; os.getcwd()', { context })).text, '/tmp')
        assert.equal((await sandbox.runCode('y', { context })).text, '5')
        assert.equal((await sandbox.runCode('y')).error.name, 'NameError')
        await sandbox.restartCodeContext(context)
        assert.equal((await sandbox.runCode('y', { context })).error.name, 'NameError')
        await sandbox.removeCodeContext(context)
        assert.ok(!(await sandbox.listCodeContexts()).some((one) => one.id === context.id))
        await fails(NotFoundError, () => sandbox.runCode('1', { context }))
        await fails(Error, () => sandbox.runCode('1', { context, language: 'python' }))
})

test('a client that gives up blocks nobody', async () => {
        await fails(TimeoutError, () => sandbox.runCode('import time; time.sleep(300)', { timeoutMs: 1000 }))
        assert.equal((await sandbox.runCode('1 + 1')).text, '2')
})
