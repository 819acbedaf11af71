#!/usr/bin/env python3
"""Records t-tests of SciPy: paired (ttest_rel) and Welch's (ttest_ind, equal_var=False).

The data beside this file was made, from the repository root, by

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install scipy==1.17.1
    /tmp/venv/bin/python tests/golden/record_scipy.py

Differences are second minus first, so the second sample is handed over first.
"""
import json
import platform
from pathlib import Path

import numpy as np
import scipy
from scipy import stats

random = np.random.default_rng(7)
samples = [
    # Student's sleep data (Biometrika 6, 1908): extra hours with two drugs, ten patients.
    ([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0], [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]),
    ([0.2, 0.4, 0.3], [0.3, 0.7, 0.35]),
    ([0.5, 0.5], [0.6, 0.9]),
    ([0.0, 1.0, 0.0, 1.0], [1.0, 0.0, 1.0, 0.0]),
]
for n, shift, scale in [(5, 1.0, 1.0), (30, 0.3, 2.0), (200, 0.05, 1.0), (300, 0.5, 0.3), (3, 40.0, 0.1)]:
    samples.append((random.normal(0, 1, n).tolist(), random.normal(shift, scale, n).tolist()))

cases = []
for before, after in samples:
    case = {'before': before, 'after': after}
    for name, result in [
        ('paired', stats.ttest_rel(after, before)),
        ('welch', stats.ttest_ind(after, before, equal_var=False)),
    ]:
        low, high = result.confidence_interval(0.95)
        case[name] = {
            'statistic': float(result.statistic),
            'degreesOfFreedom': float(result.df),
            'pValue': float(result.pvalue),
            'interval': [float(low), float(high)],
        }
    cases.append(case)

Path(__file__).with_name('scipy-t-tests.json').write_text(
    json.dumps(
        {
            'scipy': scipy.__version__,
            'numpy': np.__version__,
            'python': platform.python_version(),
            'command': 'python tests/golden/record_scipy.py',
            'cases': cases,
        }
    )
)
