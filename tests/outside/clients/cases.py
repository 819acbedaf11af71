"""What clients in Python ask at their defaults, as cases.mjs has it for those in JavaScript: `python cases.py FILE`."""
import asyncio, json, os, sys

os.environ.update(OPENAI_AGENTS_DISABLE_TRACING="1", LITELLM_LOCAL_MODEL_COST_MAP="True")
MODEL, CLAUDE = "gpt-5", "claude-opus-4-6"


def add(a: float, b: float) -> str:
    """Adds two numbers.

    Args:
        a: the first number
        b: the second number
    """
    return f"result {int(a + b)}"


SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "add", "description": "adds", "parameters": SCHEMA}}


def user(content):
    return [{"role": "user", "content": content}]


def shape():
    from pydantic import BaseModel

    class Answer(BaseModel):
        answer: int

    return Answer


def openai(c, **more):
    from openai import OpenAI

    return OpenAI(base_url=c["openaiUrl"], api_key=c["apiKey"], max_retries=0, **more)


def claude(c):
    from anthropic import Anthropic

    return Anthropic(base_url=c["anthropicUrl"], api_key=c["apiKey"], max_retries=0)


def agents(c, **more):
    import agents as sdk
    from openai import AsyncOpenAI

    sdk.set_default_openai_client(AsyncOpenAI(base_url=c["openaiUrl"], api_key=c["apiKey"], max_retries=0))
    sdk.set_tracing_disabled(True)
    return sdk, sdk.Agent(name="a", instructions="Be brief.", **more)


def pydantic_agent(c, api="chat", **more):
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    kind = OpenAIChatModel if api == "chat" else OpenAIResponsesModel
    return Agent(kind(MODEL, provider=OpenAIProvider(base_url=c["openaiUrl"], api_key=c["apiKey"])), **more)


def smol(c):
    from smolagents import OpenAIServerModel

    return OpenAIServerModel(model_id=MODEL, api_base=c["openaiUrl"], api_key=c["apiKey"])


def chain(c, **more):
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model=MODEL, base_url=c["openaiUrl"], api_key=c["apiKey"], max_retries=0, **more)


def openai_chat_plain(c):
    return openai(c).chat.completions.create(model=MODEL, messages=user(c["prompt"])).choices[0].message.content


def openai_chat_stream(c):
    stream = openai(c).chat.completions.create(model=MODEL, messages=user(c["prompt"]), stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


def openai_chat_tools(c):
    client, messages = openai(c), user(c["prompt"])
    message = client.chat.completions.create(model=MODEL, messages=messages, tools=[TOOL]).choices[0].message
    messages.append(message)
    for call in message.tool_calls:
        messages.append({"role": "tool", "tool_call_id": call.id, "content": add(**json.loads(call.function.arguments))})
    return client.chat.completions.create(model=MODEL, messages=messages, tools=[TOOL]).choices[0].message.content


def openai_chat_structured(c):
    asked = openai(c).chat.completions.parse(model=MODEL, messages=user(c["prompt"]), response_format=shape())
    return asked.choices[0].message.parsed.model_dump_json()


def openai_responses_plain(c):
    return openai(c).responses.create(model=MODEL, input=c["prompt"]).output_text


def openai_responses_structured(c):
    return openai(c).responses.parse(model=MODEL, input=c["prompt"], text_format=shape()).output_parsed.model_dump_json()


def anthropic_plain(c):
    return claude(c).messages.create(model=CLAUDE, max_tokens=300, messages=user(c["prompt"])).content[0].text


def anthropic_stream(c):
    with claude(c).messages.stream(model=CLAUDE, max_tokens=300, messages=user(c["prompt"])) as stream:
        return "".join(stream.text_stream)


def anthropic_tool_runner_tools(c):
    from anthropic import beta_tool

    runner = claude(c).beta.messages.tool_runner(model=CLAUDE, max_tokens=300, messages=user(c["prompt"]), tools=[beta_tool(add)])
    return "".join(block.text for block in runner.until_done().content if block.type == "text")


def agents_plain(c):
    sdk, agent = agents(c)
    return sdk.Runner.run_sync(agent, c["prompt"]).final_output


def agents_stream(c):
    sdk, agent = agents(c)

    async def read():
        result, text = sdk.Runner.run_streamed(agent, c["prompt"]), ""
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                text += event.data.delta
        return text

    return asyncio.run(read())


def agents_tools(c):
    import agents as all_of

    sdk, agent = agents(c, tools=[all_of.function_tool(add)])
    return sdk.Runner.run_sync(agent, c["prompt"]).final_output


def agents_structured(c):
    sdk, agent = agents(c, output_type=shape())
    return sdk.Runner.run_sync(agent, c["prompt"]).final_output.model_dump_json()


def pydantic_ai_plain(c):
    return pydantic_agent(c).run_sync(c["prompt"]).output


def pydantic_ai_tools(c):
    return pydantic_agent(c, tools=[add]).run_sync(c["prompt"]).output


def pydantic_ai_responses_tools(c):
    return pydantic_agent(c, "responses", tools=[add]).run_sync(c["prompt"]).output


def pydantic_ai_structured(c):
    return pydantic_agent(c, output_type=shape()).run_sync(c["prompt"]).output.model_dump_json()


def smolagents_code_agent_code(c):
    from smolagents import CodeAgent

    return str(CodeAgent(tools=[], model=smol(c), verbosity_level=0).run(c["prompt"]))


def smolagents_tool_agent_forcedtools(c):
    from smolagents import ToolCallingAgent, tool

    return str(ToolCallingAgent(tools=[tool(add)], model=smol(c), verbosity_level=0).run(c["prompt"]))


def litellm_openai_plain(c):
    import litellm

    asked = litellm.completion(model=f"openai/{MODEL}", messages=user(c["prompt"]), api_base=c["openaiUrl"], api_key=c["apiKey"])
    return asked.choices[0].message.content


def litellm_reasoning_plain(c):
    import litellm

    place = dict(api_base=c["openaiUrl"], api_key=c["apiKey"])
    asked = litellm.completion(model=f"openai/{MODEL}", messages=user(c["prompt"]), reasoning_effort="low", **place)
    return asked.choices[0].message.content


def litellm_anthropic_plain(c):
    import litellm

    place = dict(api_base=c["anthropicUrl"], api_key=c["apiKey"])
    return litellm.completion(model=f"anthropic/{CLAUDE}", messages=user(c["prompt"]), **place).choices[0].message.content


def litellm_openai_stream(c):
    import litellm

    place = dict(api_base=c["openaiUrl"], api_key=c["apiKey"])
    stream = litellm.completion(model=f"openai/{MODEL}", messages=user(c["prompt"]), stream=True, **place)
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream)


def langchain_plain(c):
    return chain(c).invoke(c["prompt"]).text


def langchain_stream(c):
    return "".join(str(chunk.text) for chunk in chain(c).stream(c["prompt"]))


def langchain_structured(c):
    return chain(c).with_structured_output(shape()).invoke(c["prompt"]).model_dump_json()


def langchain_by_tool_structured(c):
    return chain(c).with_structured_output(shape(), method="function_calling").invoke(c["prompt"]).model_dump_json()


def langgraph_tools(c):
    from langgraph.prebuilt import create_react_agent

    return create_react_agent(chain(c), [add]).invoke({"messages": user(c["prompt"])})["messages"][-1].text


def instructor_structured(c):
    import instructor

    client = instructor.from_openai(openai(c))
    return client.chat.completions.create(model=MODEL, messages=user(c["prompt"]), response_model=shape(), max_retries=0).model_dump_json()


def dspy_dspy(c):
    import dspy

    lm = dspy.LM(f"openai/{MODEL}", api_base=c["openaiUrl"], api_key=c["apiKey"], cache=False, temperature=1.0, max_tokens=16000)
    with dspy.context(lm=lm):
        return dspy.Predict("question -> answer")(question=c["prompt"]).answer


CASES = {name: case for name, case in list(globals().items()) if name.rsplit("_", 1)[-1] in (
    "plain", "stream", "tools", "structured", "code", "forcedtools", "dspy") and callable(case)}

if __name__ == "__main__":
    if len(sys.argv) == 1:
        print(json.dumps(list(CASES)))
    else:
        for asked in json.load(open(sys.argv[1])):
            try:
                told = {"told": CASES[asked["name"]](asked)}
            except BaseException as error:
                told = {"error": str(error), "status": getattr(error, "status_code", None)}
            print("CASE " + json.dumps({"name": asked["name"], **told}), flush=True)
