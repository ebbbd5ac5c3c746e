# SPDX-License-Identifier: Apache-2.0
"""Tenants that a client names: who may, what is apart, and how sandboxes are found a page at a time."""

import json

import pytest

from bushost import NAME, NOBODY, ROOT

MANAGER = (ROOT, 'Manager')
SERVER, OTHER_SERVER = 3, 5  # may name tenants: fake-core.h
CREATE = 'org.cubed.cube1.create'


@pytest.fixture
def tenants(polkit):
    """Everybody may create."""
    polkit.mock_polkit('SetAllowed', 'as', '2', CREATE, 'org.cubed.cube1.manage-templates')
    return polkit


def call(host, path, interface, method, signature='', *arguments, uid=SERVER):
    return host.call(path, interface, method, signature, *arguments, '--json=short', uid=uid)


def data(result):
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)['data']


def flat(*options):
    """An a{sv}: of each its name, type and value"""
    return [str(len(options)), *[word for o in options for word in o]]


def create(host, tenant=None, *options, source='template:python', uid=SERVER):
    given = flat(*([('tenant', 's', tenant)] if tenant else []), *options)
    return call(host, *MANAGER, 'CreateSandbox', 'sa{sv}', source, *given, uid=uid)


def made(*args, **kwargs):
    return data(create(*args, **kwargs))[0]


def on_sandbox(host, i, method, signature, *arguments, uid=SERVER):
    return call(host, f'{ROOT}/sandbox/{i}', 'Sandbox', method, signature, *arguments, uid=uid)


def snapshot(host, i, *options, uid=SERVER):
    return on_sandbox(host, i, 'Snapshot', 'a{sv}', *flat(*options), uid=uid)


def tenant_of(host, kind, i, uid=SERVER):
    result = host.busctl('get-property', NAME, f'{ROOT}/{kind}/{i}', f'{NAME}.{kind.capitalize()}', 'Tenant', uid=uid)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.split(' ', 1)[1])


def find(host, *filters, uid=SERVER):
    found, after = data(call(host, *MANAGER, 'FindSandboxes', 'a{sv}', *flat(*filters), uid=uid))
    return [{k: v['data'] for k, v in properties.items()} for _, properties in found], after


def ids(found):
    return [o['Id'] for o in found]


# Who may


@pytest.mark.parametrize('uid', [0, NOBODY])
def test_others_are_refused_by_the_name_of_the_option(tenants, uid):
    result = create(tenants, 'acme', uid=uid)
    assert result.returncode != 0 and "option 'tenant'" in result.stderr and 'DelegateTo=' in result.stderr
    assert f'audit denied actor={uid} action=tenant object=tenant:acme' in tenants.log()
    i = made(tenants, uid=uid)
    assert "option 'tenant'" in snapshot(tenants, i, ('tenant', 's', 'acme'), uid=uid).stderr
    assert "option 'tenant'" in on_sandbox(tenants, i, 'Fork', 'ua{sv}', '1', '1', 'tenant', 's', 'acme', uid=uid).stderr


def test_building_for_a_tenant_is_refused_as_well(tenants):
    for method, name in (('BuildTemplate', 'mine'), ('ImportTemplate', 'mine')):
        script = f'import dbus, os; bus = dbus.bus.BusConnection(os.environ["DBUS_SYSTEM_BUS_ADDRESS"]); ' \
                 f'bus.get_object("{NAME}", "{ROOT}", introspect=False).{method}("{name}", dbus.types.UnixFd(0), ' \
                 f'dbus.Dictionary({{"tenant": "acme"}}, signature="sv"), dbus_interface="{NAME}.Manager", signature="sha{{sv}}")'
        result = tenants.run('/usr/bin/python3', '-c', script, uid=NOBODY)
        assert f'{NAME}.Error.AccessDenied' in result.stderr and "option 'tenant'" in result.stderr
        result = tenants.run('/usr/bin/python3', '-c', script, uid=SERVER)
        assert result.returncode == 0, result.stderr
    jobs = data(tenants.busctl('call', NAME, ROOT, 'org.freedesktop.DBus.ObjectManager', 'GetManagedObjects', '--json=short'))[0]
    of_jobs = [o[f'{NAME}.Job']['Tenant']['data'] for o in jobs.values() if f'{NAME}.Job' in o]
    assert of_jobs == ['acme', 'acme']


@pytest.mark.parametrize('name', ['', '../x', 'a b', '_a', '.a', 'a/b', 'x' * 64])
def test_names_that_are_none(tenants, name):
    result = call(tenants, *MANAGER, 'CreateSandbox', 'sa{sv}', 'template:python', '1', 'tenant', 's', name)
    assert result.returncode != 0 and "'tenant' is no name" in result.stderr
    assert tenants.ids() == []


def test_it_is_told(tenants):
    i = made(tenants, 'acme')
    assert tenant_of(tenants, 'sandbox', i) == 'acme'
    assert tenant_of(tenants, 'sandbox', made(tenants)) == ''
    assert 'Tenant=acme' in tenants.ctl('show', i).stdout
    listed = tenants.ctl('list').stdout
    assert 'TENANT' in listed and 'acme' in listed
    assert [o['tenant'] for o in json.loads(tenants.ctl('list', '--json=short').stdout)] == ['acme', None]
    assert i in tenants.ctl('list', '--no-legend', '--tenant=acme').stdout
    assert tenants.ctl('list', '--no-legend', '--tenant=evil').stdout == ''
    tenants.ctl('kill', i)
    assert 'TENANT' not in tenants.ctl('list').stdout


# What is apart


def test_request_ids(tenants):
    same = ('request-id', 's', 'again')
    first = made(tenants, 'acme', same)
    assert made(tenants, 'acme', same) == first
    others = {made(tenants, 'evil', same), made(tenants, None, same), made(tenants, 'acme', same, uid=OTHER_SERVER)}
    assert len(others | {first}) == 4


def test_snapshots(tenants):
    i = made(tenants, 'acme')
    n = data(snapshot(tenants, i, ('name', 's', 'base'), ('tenant', 's', 'acme')))[0]
    assert tenant_of(tenants, 'snapshot', n) == 'acme'
    assert tenant_of(tenants, 'sandbox', made(tenants, 'acme', source=f'snapshot:{n}')) == 'acme'
    for who in ({'tenant': 'evil'}, {}, {'tenant': 'acme', 'uid': OTHER_SERVER}):
        result = create(tenants, source=f'snapshot:{n}', **who)
        assert result.returncode != 0 and f"No snapshot '{n}'" in result.stderr, who
    result = snapshot(tenants, i, ('tenant', 's', 'evil'))
    assert result.returncode != 0 and f"Tenant evil has no sandbox '{i}'" in result.stderr
    # Whoever owns it all need not name one.
    assert tenant_of(tenants, 'snapshot', data(snapshot(tenants, i))[0]) == 'acme'


def test_lists_of_snapshots(tenants):
    mine, theirs = made(tenants, 'acme'), made(tenants, 'evil')
    first = data(snapshot(tenants, mine, ('name', 's', 'base')))[0]
    second = data(snapshot(tenants, theirs, ('name', 's', 'base')))[0]
    third = data(snapshot(tenants, theirs, ('name', 's', 'other')))[0]

    def in_order(*filters):
        return [s[0] for s in data(call(tenants, *MANAGER, 'ListSnapshots', 'a{sv}', *flat(*filters)))[0] if s[0] in ours]

    def listed(*filters):
        return set(in_order(*filters))

    ours = {first, second, third}
    assert listed() == ours
    assert listed(('tenant', 's', 'acme')) & ours == {first}
    assert listed(('tenant', 's', 'evil')) & ours == {second, third}
    assert listed(('tenant', 's', 'evil'), ('name', 's', 'base')) & ours == {second}
    assert listed(('tenant', 's', '')) & ours == set()
    assert listed(('id', 's', third)) == {third} and listed(('id', 's', third), ('tenant', 's', 'acme')) == set()
    assert listed(('owner', 'u', '3')) == ours and listed(('owner', 'u', '5')) == set()

    # In pages; the fake's clock has seconds only, so that ids decide.
    newest, evil = ('newest-first', 'b', 'true'), ('tenant', 's', 'evil')
    assert in_order(evil) == [second, third] and in_order(evil, newest) == [third, second]
    assert in_order(evil, newest, ('limit', 'u', '1')) == [third]
    created = {s[0]: s[6] for s in data(call(tenants, *MANAGER, 'ListSnapshots', 'a{sv}', '0'))[0]}
    assert in_order(evil, newest, ('after', 's', f'{created[third]}_{third}')) == [second]
    assert in_order(evil, ('after', 's', f'{created[second]}_{second}'), ('limit', 'u', '5')) == [third]
    assert "'after' is not" in call(tenants, *MANAGER, 'ListSnapshots', 'a{sv}', '1', 'after', 's', third).stderr


def test_forks(tenants):
    i = made(tenants, 'acme')
    result = on_sandbox(tenants, i, 'Fork', 'ua{sv}', '1', '1', 'tenant', 's', 'evil')
    assert result.returncode != 0 and f"Tenant evil has no sandbox '{i}'" in result.stderr
    for options in (['1', 'tenant', 's', 'acme'], ['0']):
        copies = data(on_sandbox(tenants, i, 'Fork', 'ua{sv}', '2', *options))[0]
        assert [tenant_of(tenants, 'sandbox', c[1]) for c in copies] == ['acme', 'acme']
    # Also where somebody else does it who may.
    copies = data(on_sandbox(tenants, i, 'Fork', 'ua{sv}', '1', '0', uid=0))[0]
    assert tenant_of(tenants, 'sandbox', copies[0][1]) == 'acme'


def test_templates(tenants):
    """Those of uid 3 have the same name: each has its own, and those of root."""
    assert made(tenants, 'acme', source='template:tools') and made(tenants, 'evil', source='template:tools')
    found = {o['Tenant']: o['Template'] for o in find(tenants)[0]}
    assert found == {'acme': 'tacmeacmeacmea', 'evil': 'tevilevilevile'}
    assert made(tenants, 'acme', source='template:tacmeacmeacmea')
    for who in ({'tenant': 'evil'}, {}, {'tenant': 'acme', 'uid': OTHER_SERVER}):
        result = create(tenants, source='template:tacmeacmeacmea', **who)
        assert result.returncode != 0 and 'No template' in result.stderr, who
    assert 'No template' in create(tenants, 'other', source='template:tools').stderr
    assert made(tenants, 'other', source='template:python')


@pytest.mark.parametrize('tenant, ref, found', [
    ('acme', 'tools', True), ('evil', 'tools', True), ('acme', 'tacmeacmeacmea', True), ('other', 'python', True),
    ('other', 'tools', False), ('other', 'tacmeacmeacmea', False), ('evil', 'tacmeacmeacmea', False),
])
def test_a_build_stands_on_a_template_that_its_tenant_may_use(tenants, tenant, ref, found):
    """By name as by id, as a create does."""
    result = call(tenants, *MANAGER, 'DeriveTemplate', 'ssa{sv}', 'derived', ref, *flat(('tenant', 's', tenant)))
    assert (result.returncode == 0) == found, result
    assert found or f"No template '{ref}'" in result.stderr


def test_special_ranges_are_opened_for_a_tenant(tenants):
    policy = ('network-policy', 'a{sv}', '1', 'allow', 'as', '1', '10.0.0.0/8')

    def with_policy(tenant):
        given = ('tenant', 's', tenant) if tenant else ()
        return call(tenants, *MANAGER, 'CreateSandbox', 'sa{sv}', 'template:python', str(1 + len(given) // 3), *given, *policy)

    i = data(with_policy('acme'))[0]
    for other in ('evil', None):
        result = with_policy(other)
        assert result.returncode != 0 and 'open-special-ranges' in result.stderr
    change = ('SetNetworkPolicy', 'a{sv}', '1', 'allow', 'as', '1', '10.1.0.0/16')
    assert on_sandbox(tenants, i, *change).returncode == 0
    assert 'open-special-ranges' in on_sandbox(tenants, made(tenants, 'evil'), *change).stderr


# Finding them


LONG = ('labels', 'a{ss}', '8', *[word for k in range(8) for word in (f'k{k}', 'x' * 60000)])


def test_filters(tenants):
    a = made(tenants, 'acme', ('labels', 'a{ss}', '2', 'job', 'one', 'k', 'v'))
    b = made(tenants, 'acme', ('labels', 'a{ss}', '1', 'job', 'two'))
    c = made(tenants, 'evil', source='template:tools')
    assert on_sandbox(tenants, b, 'Pause', 'a{sv}', '0').returncode == 0
    mine = made(tenants, uid=0)

    assert ids(find(tenants)[0]) == [a, b, c]
    assert ids(find(tenants, uid=0)[0]) == [a, b, c, mine]
    assert find(tenants, uid=NOBODY) == ([], '')
    assert ids(find(tenants, ('newest-first', 'b', 'true'))[0]) == [c, b, a]
    assert ids(find(tenants, ('tenant', 's', 'acme'))[0]) == [a, b]
    assert ids(find(tenants, ('tenant', 's', ''), uid=0)[0]) == [mine]
    assert ids(find(tenants, ('owner', 'u', '0'), uid=0)[0]) == [mine]
    assert ids(find(tenants, ('owner', 'u', '3'), ('tenant', 's', 'evil'), uid=0)[0]) == [c]
    assert ids(find(tenants, ('owner', 'u', '0'))[0]) == []
    assert ids(find(tenants, ('labels', 'a{ss}', '1', 'job', 'one'))[0]) == [a]
    assert ids(find(tenants, ('labels', 'a{ss}', '2', 'job', 'two', 'k', 'v'))[0]) == []
    assert ids(find(tenants, ('states', 'as', '1', 'paused'))[0]) == [b]
    assert ids(find(tenants, ('states', 'as', '2', 'paused', 'running'))[0]) == [a, b, c]
    assert ids(find(tenants, ('template', 's', 'tools'))[0]) == [c]
    assert ids(find(tenants, ('template', 's', 'tpythonpython'))[0]) == [a, b]
    assert ids(find(tenants, ('template', 's', 'pyth'))[0]) == []
    of_b = find(tenants, ('states', 'as', '1', 'paused'))[0][0]
    assert of_b['Labels'] == {'job': 'two'} and of_b['State'] == 'paused' and of_b['Owner'] == SERVER
    since = str(of_b['CreatedTimestamp'])
    assert ids(find(tenants, ('since', 't', since))[0]) == [b, c]
    assert of_b['Memory'] == 512 << 20 and of_b['OnTimeout'] == 'kill' and of_b['TemplateName'] == 'python'


def test_pages(tenants):
    made_ids = [made(tenants, 'acme') for _ in range(5)]
    for order in ([], [('newest-first', 'b', 'true')]):
        seen, after = [], ''
        while True:
            page, after = find(tenants, ('limit', 'u', '2'), *order, *([('after', 's', after)] if after else []))
            assert len(page) <= 2
            seen += ids(page)
            if not after:
                break
        assert seen == (made_ids[::-1] if order else made_ids)
    # A page may go on at any place.
    of_two = find(tenants, ('limit', 'u', '2'))[0][1]
    between = f'{of_two["CreatedTimestamp"]}_aaaaaaaaaaaa'
    assert ids(find(tenants, ('after', 's', between))[0]) == made_ids[1:]
    assert ids(find(tenants, ('after', 's', between), ('newest-first', 'b', 'true'))[0]) == made_ids[:1]
    # What comes or goes in between moves nothing.
    page, after = find(tenants, ('limit', 'u', '2'))
    tenants.ctl('kill', made_ids[1])
    late = made(tenants, 'acme')
    assert ids(find(tenants, ('after', 's', after))[0]) == [*made_ids[2:], late]


def test_a_page_ends_where_labels_are_long(tenants):
    for _ in range(4):
        made(tenants, 'acme', LONG)
    page, after = find(tenants)
    assert 1 <= len(page) < 4 and after
    rest, end = find(tenants, ('after', 's', after))
    assert len(page) + len(rest) == 4 and not end


@pytest.mark.parametrize('filters, words', [
    (['limit', 'u', '0'], "'limit' is 0"),
    (['limit', 'u', '1001'], "'limit' is 1 to 1000"),
    (['states', 'as', '1', 'asleep'], "no state 'asleep'"),
    (['after', 's', 'x'], "'after' is not"),
    (['after', 's', '_'], "'after' is not"),
    (['after', 's', '1_../../x'], "'after' is not"),
    (['after', 's', '99999999999999999999999_abcdefghijkl'], "'after' is not"),
    (['before', 's', 'x'], "no option 'before'"),
])
def test_bad_filters(tenants, filters, words):
    result = call(tenants, *MANAGER, 'FindSandboxes', 'a{sv}', '1', *filters)
    assert result.returncode != 0 and words in result.stderr


def find_templates(host, *filters, uid=SERVER):
    found, after = data(call(host, *MANAGER, 'FindTemplates', 'a{sv}', *flat(*filters), uid=uid))
    return [{k: v['data'] for k, v in properties.items()} for _, properties in found], after


def test_templates_are_found_for_a_tenant(tenants):
    of_root = {'tpythonpython', 'tinterpreterin', 'tonlineonlineo', 'tspecialspecia'}
    others = {'tacmeacmeacmea', 'tevilevilevile', 'tprivateprivat', 'townspecialown'}
    known = of_root | others  # a build of another test may have left more
    everything = {o['Id'] for o in find_templates(tenants)[0]}
    mine = everything & known
    assert mine >= of_root | {'tacmeacmeacmea', 'tevilevilevile'} and not mine & {'tprivateprivat', 'townspecialown'}
    for tenant, own in (('acme', {'tacmeacmeacmea'}), ('evil', {'tevilevilevile'}), ('other', set())):
        assert {o['Id'] for o in find_templates(tenants, ('tenant', 's', tenant))[0]} & known == of_root | own
    assert {o['Id'] for o in find_templates(tenants, ('tenant', 's', 'acme'), uid=OTHER_SERVER)[0]} & known == of_root
    assert 'tprivateprivat' in {o['Id'] for o in find_templates(tenants, uid=0)[0]}
    (acme,) = [o for o in find_templates(tenants, ('tenant', 's', 'acme'))[0] if o['Id'] == 'tacmeacmeacmea']
    assert acme['Name'] == 'tools:latest' and acme['Tenant'] == 'acme' and acme['Owner'] == SERVER
    assert acme['Size'] == 10000 and acme['Start'] == 'booted' and acme['Aliases'] == []

    (brief,) = [o for o in find_templates(tenants, ('tenant', 's', 'acme'), ('names-only', 'b', 'true'))[0] if o['Id'] == acme['Id']]
    assert brief == {k: acme[k] for k in ('Id', 'Name', 'Aliases', 'Owner', 'Tenant')}

    seen, after = [], ''
    while True:
        page, after = find_templates(tenants, ('limit', 'u', '2'), *([('after', 's', after)] if after else []))
        assert len(page) <= 2
        seen += [o['Id'] for o in page]
        if not after:
            break
    assert len(seen) == len(everything) and set(seen) == everything


def test_list_of_cubectl_goes_through_all_pages(tenants):
    made_ids = [made(tenants, 'acme', LONG)
                for _ in range(4)]
    assert tenants.ids() == made_ids
    assert tenants.ctl('list', '--no-legend', '--label=k0=y').stdout == ''
    assert tenants.ctl('list', '--no-legend', '--state=paused,failed').stdout == ''
    assert len(tenants.ctl('list', '--no-legend', '--state=paused,running').stdout.splitlines()) == 4
    assert 'KEY=VALUE' in tenants.ctl('list', '--label=k0').stderr
    assert "no state 'asleep'" in tenants.ctl('list', '--state=asleep').stderr
