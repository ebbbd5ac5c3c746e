# SPDX-License-Identifier: Apache-2.0
"""Container images for tests: an OCI image layout made of lists of files, and what a tar holds as a manifest."""

import gzip
import hashlib
import io
import json
import tarfile

TYPES = {'f': tarfile.REGTYPE, 'd': tarfile.DIRTYPE, 'l': tarfile.SYMTYPE, 'h': tarfile.LNKTYPE}


def layer(*files):
    """A tar of (type, path, content or target, mode, owner, attributes as a dict)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w', format=tarfile.PAX_FORMAT) as tar:
        for kind, path, content, mode, owner, attributes in files:
            info = tarfile.TarInfo(path)
            info.type, info.mode, info.uid, info.gid = TYPES[kind], mode, owner, owner
            info.pax_headers = {f'SCHILY.xattr.{k}': v for k, v in attributes.items()}
            if kind == 'f':
                info.size = len(content)
            else:
                info.linkname = content
            tar.addfile(info, io.BytesIO(content.encode()))
    return out.getvalue()


class Layout:
    def __init__(self, directory):
        self.directory = directory
        (directory / 'blobs/sha256').mkdir(parents=True)
        (directory / 'oci-layout').write_text('{"imageLayoutVersion":"1.0.0"}')

    def add(self, data, media):
        digest = hashlib.sha256(data).hexdigest()
        (self.directory / 'blobs/sha256' / digest).write_bytes(data)
        return {'mediaType': f'application/vnd.oci.image.{media}', 'digest': f'sha256:{digest}', 'size': len(data)}

    def add_image(self, layers, config, name='latest', level=9):
        """Its digest, too."""
        tars = [self.add(gzip.compress(data, level, mtime=0), 'layer.v1.tar+gzip') for data in layers]
        ids = [f'sha256:{hashlib.sha256(data).hexdigest()}' for data in layers]
        text = {'architecture': 'amd64', 'os': 'linux', 'config': config, 'rootfs': {'type': 'layers', 'diff_ids': ids}}
        manifest = {'schemaVersion': 2, 'mediaType': 'application/vnd.oci.image.manifest.v1+json', 'layers': tars,
                    'config': self.add(json.dumps(text).encode(), 'config.v1+json')}
        entry = self.add(json.dumps(manifest).encode(), 'manifest.v1+json')
        entry['annotations'] = {'org.opencontainers.image.ref.name': name}
        (self.directory / 'index.json').write_text(json.dumps({'schemaVersion': 2, 'manifests': [entry]}))
        return entry['digest']


def manifest(data):
    """What of a tar has to come out the same: {path: (type, mode, owner, group, content or target, attributes)}."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for info in tar:
            attributes = {k.removeprefix('SCHILY.xattr.'): v for k, v in info.pax_headers.items()
                          if k.startswith('SCHILY.xattr.')}
            content = tar.extractfile(info).read().decode() if info.isreg() else info.linkname
            if info.islnk():
                found[info.name] = found[info.linkname]
            else:
                found[info.name] = (info.type, info.mode, info.uid, info.gid, content, attributes)
    return found
