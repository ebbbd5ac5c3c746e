# For the copy of E2B's own tests that is run: limits of time that they set, and short lifetimes of sandboxes that they ask for, are
# longer by the factor. What they wait for in between is by suite.waits.mjs and suite_waits.py.

# JavaScript
s/^( *)([0-9]+_000)$/\1\2 * @FACTOR@/
s/\{ timeout: ([0-9_]+) \}/{ timeout: \1 * @FACTOR@ }/
s/timeoutMs: ([0-9]{1,2}_000)\b/timeoutMs: \1 * @FACTOR@/
s/AbortSignal\.timeout\(([0-9_]+)\)/AbortSignal.timeout(\1 * @FACTOR@)/

# Python
s/mark\.timeout\(([0-9]+)\)/mark.timeout(\1 * @FACTOR@)/
s/([ (])timeout=(3|5|10|15|60)(\.0)?([,)])/\1timeout=\2\3 * @FACTOR@\4/
