/** The colors of programs under test must not depend on the environment of the test run. */
for (const name of ['CI', 'FORCE_COLOR', 'NODE_DISABLE_COLORS', 'NO_COLOR']) delete process.env[name]
