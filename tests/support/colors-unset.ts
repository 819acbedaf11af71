/** Programs under test decide about colors by what the test gives them, not by the variables of whoever runs the tests. */
for (const name of ['CI', 'FORCE_COLOR', 'NODE_DISABLE_COLORS', 'NO_COLOR']) delete process.env[name]
