# SPDX-License-Identifier: Apache-2.0
"""gateway/openapi.yaml, and whether an answer is as it says."""

import json
import pathlib
import re

import jsonschema
import yaml

TOP = pathlib.Path(__file__).resolve().parents[2]
METHODS = ('get', 'post', 'put', 'delete', 'patch')


class Description:
    def __init__(self):
        self.tree = yaml.safe_load((TOP / 'gateway/openapi.yaml').read_text())
        self.resolver = jsonschema.RefResolver('', self.tree)
        self.paths = [(re.compile('/?'.join(('^', *(r'/+[^/]+' if p[0] == '{' else '/+' + re.escape(p)
                                                    for p in path[1:].split('/')), '$'))), path) for path in self.tree['paths']]

    def operations(self):
        for path, item in self.tree['paths'].items():
            for method in METHODS:
                if method in item:
                    yield method.upper(), path

    def find(self, method, target):
        """What is said of it, or None."""
        for pattern, path in self.paths:
            if pattern.match(target.split('?')[0]):
                return self.tree['paths'][path].get(method.lower())
        return None

    def resolve(self, node):
        return self.resolver.resolve(node['$ref'])[1] if '$ref' in node else node

    def check(self, method, target, reply):
        operation = self.find(method, target) or {'responses': {'default': {'$ref': '#/components/responses/Error'}}}
        responses = operation['responses']
        assert str(reply.status) in responses or ('default' in responses and reply.status >= 400), (method, target, reply.status)
        response = self.resolve(responses.get(str(reply.status)) or responses['default'])
        for name, header in response.get('headers', {}).items():
            if reply.headers[name] is not None and self.resolve(header)['schema']['type'] == 'integer':
                assert re.fullmatch('[0-9]+', reply.headers[name])
        if 'content' not in response:
            assert reply.body == b''
            return
        value = json.loads(reply.body)
        jsonschema.Draft202012Validator(response['content']['application/json']['schema'], resolver=self.resolver).validate(value)
        if reply.status >= 400:
            assert value['code'] == reply.status
