"""Messages of Tinker's protocol as its SDK writes and reads them, for tests/engines/tinker-codec.test.ts:

    pip install tinker==0.38.0     (Python 3.12)
    python tests/golden/record_tinker_protobuf.py > tests/golden/tinker-protobuf.json
"""

import base64
import json

import numpy as np
from tinker.proto import tinker_public_pb2 as pb
from tinker.proto.request_conv import forward_backward_request_to_proto
from tinker.proto.response_conv import deserialize_forward_backward_output, deserialize_sample_response
from tinker.types.datum import Datum
from tinker.types.forward_backward_input import ForwardBackwardInput
from tinker.types.forward_backward_request import ForwardBackwardRequest
from tinker.types.model_input import ModelInput
from tinker.types.tensor_data import TensorData


def encoded(message):
    return base64.b64encode(message.SerializeToString(deterministic=True)).decode()


def request(path, body):
    given = body[f"{path}_input"]
    data = [
        Datum(
            model_input=ModelInput.from_ints(each["model_input"]["chunks"][0]["tokens"]),
            loss_fn_inputs={name: TensorData(**value) for name, value in each["loss_fn_inputs"].items()},
        )
        for each in given["data"]
    ]
    whole = ForwardBackwardInput(data=data, loss_fn=given["loss_fn"], loss_fn_config=given.get("loss_fn_config"))
    message = forward_backward_request_to_proto(ForwardBackwardRequest(whole, body["model_id"], body["seq_id"]))
    message.forward_only = path == "forward"
    return {"path": path, "body": body, "bytes": encoded(message)}


def tensor(data, dtype):
    return {"data": data, "dtype": dtype, "shape": [len(data)]}


def datum(tokens, **inputs):
    return {
        "model_input": {"chunks": [{"type": "encoded_text", "tokens": tokens[:-1]}]},
        "loss_fn_inputs": {"target_tokens": tensor(tokens[1:], "int64"), **{k: tensor(v, "float32") for k, v in inputs.items()}},
    }


requests = [
    request("forward", {"forward_input": {"data": [datum([1, 2, 300, 70000], weights=[1, 0, 0.25])], "loss_fn": "cross_entropy"}, "model_id": "model-1", "seq_id": 1}),
    request(
        "forward_backward",
        {
            "forward_backward_input": {
                "data": [
                    datum([5, 6, 7], logprobs=[-0.5, -1.25], advantages=[2, -3]),
                    datum([9, 1], logprobs=[-1e-7], advantages=[0]),
                ],
                "loss_fn": "ppo",
                "loss_fn_config": {"clip_low_threshold": 0.8, "clip_high_threshold": 0},
            },
            "model_id": "tinker://möbel",
            "seq_id": 300,
        },
    ),
]


def passed(record):
    data = record.SerializeToString()
    told = deserialize_forward_backward_output(data)
    outputs = [{name: [float(v) for v in np.asarray(t.data).reshape(-1)] for name, t in each.items()} for each in told.loss_fn_outputs]
    return {"bytes": base64.b64encode(data).decode(), "outputs": outputs, "metrics": told.metrics}


def batched(arrays, dtype, kind):
    raw = [np.asarray(a, dtype=dtype).tobytes() for a in arrays]
    offsets = np.cumsum([0] + [len(r) for r in raw]).astype(np.int64)
    return pb.BatchedTensor(data=b"".join(raw), offsets=offsets.tobytes(), dtype=kind)


two = pb.ArrayRecord(type_tag="t", num_datums=2)
two.fields["logprobs"].CopyFrom(batched([[-0.5, -1.5, -2.5], [-0.125]], np.float32, pb.DTYPE_FLOAT32))
two.fields["elementwise_loss"].CopyFrom(batched([[0x3F80, 0xBF80, 0x4049], [0]], np.uint16, pb.DTYPE_BFLOAT16))
one = pb.ArrayRecord(num_datums=1)
one.fields["logprobs"].CopyFrom(batched([[-3.25, -4.5]], np.float32, pb.DTYPE_FLOAT32))
one.fields["elementwise_loss"].CopyFrom(batched([[0.5, 2]], np.float32, pb.DTYPE_FLOAT32))
ids = pb.ArrayRecord(num_datums=1)
ids.fields["ids"].CopyFrom(batched([[7, 2**40]], np.int64, pb.DTYPE_INT64))
passes = [
    passed(pb.ForwardBackwardOutput(loss_fn_output_type="x", loss_fn_outputs=[two, one], metrics={"loss:sum": 12.5, "skyrl.ai/grad_norm": 0.0})),
    passed(pb.ForwardBackwardOutput(loss_fn_outputs=[ids])),
    passed(pb.ForwardBackwardOutput()),
]


def sampled(message):
    data = message.SerializeToString()
    told = deserialize_sample_response(data)
    sequences = [
        {"stop_reason": s.stop_reason, "tokens": [int(t) for t in s.tokens], "logprobs": None if s.logprobs is None else [float(v) for v in s.logprobs]}
        for s in told.sequences
    ]
    return {"bytes": base64.b64encode(data).decode(), "sequences": sequences, "hits": told.prompt_cache_hit_tokens}


def sequence(reason, tokens, logprobs):
    made = pb.SampledSequence(stop_reason=reason, tokens=np.asarray(tokens, np.int32).tobytes())
    if logprobs is not None:
        made.logprobs = np.asarray(logprobs, np.float32).tobytes()
    return made


samples = [
    sampled(pb.SampleResponse(sequences=[sequence(0, [4, 70000, 0], [-0.25, -1.5, 0]), sequence(1, [1], None)], prompt_cache_hit_tokens=200)),
    sampled(pb.SampleResponse(sequences=[sequence(1, [3, 2], [-7, -0.5])], prompt_logprobs=np.asarray([np.nan, -1], np.float32).tobytes())),
]
print(json.dumps({"sdk": "0.38.0", "requests": requests, "passes": passes, "samples": samples}, indent=1))
