"""An agent in Python with OpenAI's own client, unchanged but for where it asks: it lets the model look up a digit before it answers.

    OPENAI_BASE_URL=… OPENAI_API_KEY=… COLONNADE_TASK='{"prompt": …, "answer": "7"}' python agent.py
"""
import json
import os

from openai import OpenAI


def look_up(task):
    """What the tool says."""
    return f"={task['answer']}"


def solve(client, task):
    messages = list(task["prompt"])
    for _ in range(2):
        answer = client.chat.completions.create(model="gpt-5-mini", messages=messages, max_completion_tokens=4)
        said = answer.choices[0].message
        if said.content != "?":
            return said.content
        messages += [said, {"role": "user", "content": look_up(task)}]


if __name__ == "__main__":
    print(solve(OpenAI(), json.loads(os.environ["COLONNADE_TASK"])))
