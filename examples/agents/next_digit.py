"""An agent of Python's standard library alone. It asks the model for JSON by a schema, and rewards what it says itself.

    colonnade train text/dataset environment.path=digits.jsonl mode=rl agent='python3 next_digit.py'

Each line of digits.jsonl is a task, like {"prompt": "3", "answer": "4"}: after 4 comes 0.
"""
import json
import os
from urllib.request import Request, urlopen

SCHEMA = {"type": "integer", "enum": [0, 1, 2, 3, 4]}


def ask(messages):
    """The model's answer: JSON of the schema, whatever it has learned."""
    body = {
        "model": "any",
        "messages": messages,
        "response_format": {"type": "json_schema", "json_schema": {"name": "digit", "schema": SCHEMA}},
    }
    headers = {"content-type": "application/json", "authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    url = f"{os.environ['OPENAI_BASE_URL']}/chat/completions"
    with urlopen(Request(url, json.dumps(body).encode(), headers)) as answer:
        return json.loads(json.load(answer)["choices"][0]["message"]["content"])


task = json.loads(os.environ["COLONNADE_TASK"])
said = ask([{"role": "user", "content": task["prompt"]}])
print(json.dumps({"reward": 1 if str(said) == task["answer"] else 0}))
