"""Records a part of the JSON Schema test suite, as the source distribution of jsonschema on PyPI has it.

pip download --no-deps --no-binary :all: jsonschema==4.23.0 && tar xzf jsonschema-4.23.0.tar.gz
python tests/golden/record_json_schema.py jsonschema-4.23.0/json/tests/draft2020-12 > tests/golden/json-schema-suite.json
"""

import json
import sys
from pathlib import Path

FILES = """additionalProperties allOf anyOf boolean_schema const contains default enum exclusiveMaximum exclusiveMinimum items maxItems
maxLength maxProperties maximum minItems minLength minProperties minimum multipleOf not oneOf pattern patternProperties prefixItems
properties ref required type uniqueItems""".split()

folder = Path(sys.argv[1])
groups = {name: json.loads((folder / f"{name}.json").read_text()) for name in FILES}
for name in FILES:
    for group in groups[name]:
        group.pop("comment", None)
        group["schema"].pop("$schema", None) if isinstance(group["schema"], dict) else None
head = {"package": "jsonschema 4.23.0", "draft": folder.name, "command": "python tests/golden/record_json_schema.py"}
print(json.dumps({**head, "files": groups}, separators=(",", ":"), ensure_ascii=True))
