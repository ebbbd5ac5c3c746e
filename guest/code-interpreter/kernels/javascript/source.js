// SPDX-License-Identifier: Apache-2.0
// What a cell says that only a module, or only TypeScript, may say, as a script that the engine's console takes:
// imports become awaited ones, exports lose the word, types are left out.
'use strict';

const PLACES = ['/usr/share/nodejs/typescript', 'typescript'];
let loaded;

// Only when a cell needs it: it is large.
function typescript() {
  for (const place of PLACES) {
    try {
      loaded ??= require(place);
    } catch (error) {
      if (error.code !== 'MODULE_NOT_FOUND') throw error;
    }
  }
  if (!loaded) throw new Error('import and TypeScript need Debian\'s package node-typescript');
  return loaded;
}

// import a, * as b, { c as d } from 'x'  ->  const { default: a, c: d } = await ...('x')
function importText(ts, node, source) {
  const module = `await __cubeImport(${node.moduleSpecifier.getText(source)})`;
  const clause = node.importClause;
  if (!clause) return `${module};`;
  if (clause.isTypeOnly) return '';
  const names = clause.name ? [`default: ${clause.name.text}`] : [];
  const bindings = clause.namedBindings;
  let text = '';
  if (bindings && ts.isNamespaceImport(bindings)) text += `var ${bindings.name.text} = ${module};`;
  else if (bindings) {
    names.push(...bindings.elements.filter((element) => !element.isTypeOnly)
      .map((element) => `${(element.propertyName ?? element.name).text}: ${element.name.text}`));
  }
  if (names.length > 0) text += `var { ${names.join(', ')} } = ${module};`;
  return text;
}

function edits(ts, source) {
  const found = [];
  const replace = (node, text) => found.push({ start: node.getStart(source), end: node.getEnd(), text });
  const visit = (node) => {
    if (ts.isImportDeclaration(node)) replace(node, importText(ts, node, source));
    else if (ts.isExportDeclaration(node)) replace(node, '');
    else if (ts.isExportAssignment(node)) replace(node, `${node.expression.getText(source)};`);
    else {
      if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword) {
        replace(node.expression, '__cubeImport');
      }
      for (const modifier of node.modifiers ?? []) {
        if ([ts.SyntaxKind.ExportKeyword, ts.SyntaxKind.DefaultKeyword].includes(modifier.kind)) replace(modifier, '');
      }
      ts.forEachChild(node, visit);
    }
  };
  visit(source);
  return found.sort((a, b) => b.start - a.start);
}

function checkSyntax(ts, source, text) {
  const [first] = source.parseDiagnostics;
  if (!first) return;
  const { line, character } = source.getLineAndCharacterOfPosition(first.start);
  const message = ts.flattenDiagnosticMessageText(first.messageText, '\n');
  const error = new SyntaxError(message);
  error.cubeTrace = `${text.split('\n')[line]}\n${' '.repeat(character)}^\nSyntaxError: ${message} (line ${line + 1})`;
  throw error;
}

exports.translate = function translate(code, language) {
  const typed = language === 'typescript';
  if (!typed && !/\b(import|export)\b/.test(code)) return code;
  const ts = typescript();
  const kind = typed ? ts.ScriptKind.TS : ts.ScriptKind.JS;
  const source = ts.createSourceFile('cell', code, ts.ScriptTarget.Latest, true, kind);
  if (typed) checkSyntax(ts, source, code);
  let text = code;
  for (const edit of edits(ts, source)) text = text.slice(0, edit.start) + edit.text + text.slice(edit.end);
  if (!typed) return text;
  return ts.transpile(text, {
    target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext, removeComments: false, alwaysStrict: false,
  });
};
