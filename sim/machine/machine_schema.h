// The JSON Schema of machine files: which keys exist and which are required. base/quantities.h
// parses the quantities.
#pragma once

#include <string_view>

namespace lockstep::sim {

inline constexpr std::string_view kMachineSchema = R"({
  "$schema": "http://json-schema.org/draft-07/schema#",
  "type": "object",
  "additionalProperties": false,
  "required": ["machine", "name", "compute", "memory", "links"],
  "definitions": {
    "rates": {
      "type": "object",
      "description": "how fast products of this type are",
      "additionalProperties": false,
      "required": ["peak"],
      "properties": {
        "peak": {
          "type": "string",
          "minLength": 1,
          "maxLength": 60,
          "description": "the most, as 989TFLOP/s"
        },
        "matmul": {
          "type": "number",
          "exclusiveMinimum": 0,
          "maximum": 1,
          "default": 1,
          "description": "the share of it that matrix products reach"
        },
        "convolution": {
          "type": "number",
          "exclusiveMinimum": 0,
          "maximum": 1,
          "default": 1,
          "description": "the share of it that convolutions reach"
        }
      }
    }
  },
  "properties": {
    "machine": {
      "type": "integer",
      "minimum": 1,
      "maximum": 1,
      "description": "version of the format: 1"
    },
    "name": {
      "type": "string",
      "minLength": 1,
      "maxLength": 200,
      "description": "what people call it"
    },
    "ranks_per_node": {"type": "integer", "minimum": 1, "maximum": 4096,
                       "default": 1,
                       "description": "ranks on each node"},
    "cores": {
      "type": "integer",
      "minimum": 1,
      "maximum": 4096,
      "description": "processor cores that the ranks of a node share"
    },
    "contention": {
      "type": "number",
      "minimum": 1,
      "maximum": 100,
      "default": 1,
      "description": "how much longer work takes while all cores are busy"
    },
    "threads": {
      "type": "object",
      "additionalProperties": false,
      "description": "how the cores are shared",
      "properties": {
        "wake": {
          "type": "string",
          "description": "until a thread can run that something has come for, e.g. 60us"
        },
        "start": {
          "type": "string",
          "description": "until threads that have rested begin a call, e.g. 150us"
        },
        "slice": {
          "type": "string",
          "description": "what a thread runs before another has its turn, e.g. 4ms"
        },
        "refill": {
          "type": "string",
          "description": "what work takes longer after its rank waited for a call, e.g. 300us"
        }
      }
    },
    "compute": {
      "type": "object",
      "additionalProperties": false,
      "description": "by type, how fast products are",
      "properties": {
        "float64": {"$ref": "#/definitions/rates"},
        "float32": {"$ref": "#/definitions/rates"},
        "bfloat16": {"$ref": "#/definitions/rates"},
        "float16": {"$ref": "#/definitions/rates"}
      }
    },
    "nccl": {
      "type": "object",
      "additionalProperties": false,
      "required": ["gpu"],
      "description": "NCCL carries the calls, and chooses how by its own estimates",
      "properties": {
        "gpu": {
          "type": "string",
          "enum": ["volta", "ampere", "hopper", "blackwell"],
          "description": "whose constants NCCL takes"
        },
        "cpu": {
          "type": "string",
          "enum": ["intel", "amd"],
          "default": "intel",
          "description": "of the hosts: LL over the network depends on it"
        },
        "fitted_to": {
          "type": "array",
          "maxItems": 256,
          "description": "measured rows that latency, speed and fill were fitted to",
          "items": {"type": "string", "description": "a row, as calibrate check names it",
                    "minLength": 1, "maxLength": 200}
        }
      }
    },
    "memory": {
      "type": "object",
      "additionalProperties": false,
      "required": ["bandwidth"],
      "description": "of a rank's device",
      "properties": {
        "bandwidth": {"type": "string", "minLength": 1, "maxLength": 60,
                      "description": "as 3.35TB/s"},
        "efficiency": {
          "type": "number",
          "exclusiveMinimum": 0,
          "maximum": 1,
          "default": 1,
          "description": "the share of it that kernels reach"
        },
        "per_device": {
          "type": "string",
          "minLength": 1,
          "maxLength": 60,
          "description": "how much there is, as 80GB"
        },
        "reserved": {
          "type": "string",
          "minLength": 1,
          "maxLength": 60,
          "description": "what the framework and the transport keep of it, as 1.5GB"
        },
        "fragmentation": {
          "type": "number",
          "minimum": 1,
          "maximum": 10,
          "description": "how much more the allocator takes than it gives out"
        }
      }
    },
    "kernels": {
      "type": "object",
      "additionalProperties": false,
      "description": "what the host needs for them",
      "properties": {
        "launch": {
          "type": "string",
          "minLength": 1,
          "maxLength": 60,
          "default": "0us",
          "description": "of each kernel, as 5us"
        },
        "dispatch": {
          "type": "string",
          "minLength": 1,
          "maxLength": 60,
          "default": "0us",
          "description": "of each operation, as 1us"
        },
        "hidden": {"type": "boolean", "default": true,
          "description": "whether the device works meanwhile"}
      }
    },
    "host": {
      "type": "object",
      "additionalProperties": false,
      "description": "the host's other work",
      "properties": {
        "sample": {
          "type": "string",
          "minLength": 1,
          "maxLength": 60,
          "default": "0us",
          "description": "to prepare a sample, as 50us"
        }
      }
    },
    "slow": {
      "type": "array",
      "maxItems": 4096,
      "description": "ranks whose work takes longer: a GPU that throttles, or an older one",
      "items": {
        "type": "object",
        "description": "some ranks",
        "additionalProperties": false,
        "required": ["first", "work"],
        "properties": {
          "first": {"type": "integer", "minimum": 0, "maximum": 1048575,
                    "description": "the first of these ranks"},
          "last": {"type": "integer", "minimum": 0, "maximum": 1048575,
                   "description": "the last one; left out: the same"},
          "work": {"type": "number", "minimum": 0.01, "maximum": 1000,
                   "description": "how many times as long their work takes"}
        }
      }
    },
    "measured": {
      "type": "array",
      "maxItems": 64,
      "description": "all-reduces as measured",
      "items": {
        "type": "object",
        "description": "one number of ranks, on as few nodes as hold them",
        "additionalProperties": false,
        "required": ["from", "ranks", "points"],
        "properties": {
          "from": {"type": "string", "minLength": 1, "maxLength": 200,
                   "description": "the machine's name in the table, as h100_32_ib"},
          "ranks": {"type": "integer", "minimum": 2, "maximum": 1048576,
                    "description": "ranks that take part"},
          "points": {
            "type": "array",
            "minItems": 2,
            "maxItems": 64,
            "description": "sizes of the buffer and times, in ascending order",
            "items": {
              "type": "array",
              "minItems": 2,
              "maxItems": 2,
              "description": "a size and its time, as [64KiB, 50.8us]",
              "items": {"type": "string", "minLength": 1, "maxLength": 60,
                        "description": "a size or a time"}
            }
          }
        }
      }
    },
    "transformer": {
      "type": "object",
      "description": "how fast a transformer's training step is: what plans are priced by",
      "additionalProperties": false,
      "properties": {
        "processors": {"type": "number", "minimum": 1, "maximum": 1e5,
          "description": "streaming multiprocessors"},
        "gemm_efficiency": {"type": "number", "minimum": 0.01, "maximum": 1,
          "description": "share of the peak, for full waves and a deep product"},
        "gemm_half_depth": {"type": "number", "minimum": 1, "maximum": 1e4,
          "description": "inner dimension at which half of it is reached"},
        "memory_bandwidth": {"type": "number", "minimum": 1e9, "maximum": 1e14,
          "description": "bytes/s that element-wise kernels reach"},
        "attention_efficiency": {"type": "number", "minimum": 0.01, "maximum": 1,
          "description": "share of the peak of fused attention's products"},
        "attention_traffic": {"type": "number", "minimum": 0.01, "maximum": 100,
          "description": "scale of the bytes of softmax and dropout on the scores"},
        "logit_traffic": {"type": "number", "minimum": 0.1, "maximum": 1e4,
          "description": "bytes per logit: loss, its gradient, float32 copies"},
        "launch_forward": {"type": "number", "minimum": 1e-7, "maximum": 1,
          "description": "s per layer and micro-batch, forward"},
        "launch_backward": {"type": "number", "minimum": 1e-7, "maximum": 1,
          "description": "s per layer and micro-batch, backward"},
        "launch_unfused": {"type": "number", "minimum": 1e-7, "maximum": 1,
          "description": "s added where the fused softmax cannot be used"},
        "launch_micro_batch": {"type": "number", "minimum": 1e-7, "maximum": 1,
          "description": "s per micro-batch and stage"},
        "step_overhead": {"type": "number", "minimum": 1e-7, "maximum": 10,
          "description": "s per step"},
        "optimizer_traffic": {"type": "number", "minimum": 0.1, "maximum": 1e4,
          "description": "bytes per parameter of clipping, update and copy"},
        "call_overhead": {"type": "number", "minimum": 1e-9, "maximum": 1e-2,
          "description": "s per collective and doubling of its ranks: launching, and ranks that come late"},
        "node_speed": {"type": "number", "minimum": 0.01, "maximum": 100,
          "description": "speed of calls inside a node over that of the same call alone"},
        "network_speed": {"type": "number", "minimum": 0.01, "maximum": 100,
          "description": "speed of calls between nodes, likewise"},
        "stage_handover": {"type": "number", "minimum": 1e-7, "maximum": 1,
          "description": "s for which a send and a receive occupy a pipeline stage"},
        "compiled_traffic": {"type": "number", "minimum": 0.01, "maximum": 1,
          "description": "share of element-wise bytes left after a compiler's fusion"},
        "fp8_gain": {"type": "number", "minimum": 0.5, "maximum": 2,
          "description": "speed of linear layers in 8 bits over 16 bits"},
        "overlap_slowdown": {"type": "number", "minimum": 0.001, "maximum": 1,
          "description": "share of hidden communication that slows computing down"},
        "reserved_memory": {"type": "number", "minimum": 1, "maximum": 1e11,
          "description": "bytes of context, libraries and fragmentation"},
        "spread": {"type": "number", "minimum": 0.001, "maximum": 1,
          "description": "four of five rows that were not fitted to are within this share"},
        "fitted_to": {
          "type": "array",
          "maxItems": 1000,
          "description": "measured rows that the numbers were fitted to",
          "items": {"type": "string", "description": "a row, as calibrate check names it",
                    "minLength": 1, "maxLength": 200}
        }
      }
    },
    "links": {
      "type": "array",
      "minItems": 1,
      "maxItems": 2,
      "description": "inside a node, and between nodes",
      "items": {
        "type": "object",
        "description": "a level of links",
        "additionalProperties": false,
        "required": ["alpha", "beta"],
        "properties": {
          "alpha": {
            "type": "string",
            "minLength": 1,
            "maxLength": 60,
            "description": "latency of a hop, as 1us"
          },
          "beta": {
            "type": "string",
            "minLength": 1,
            "maxLength": 60,
            "description": "bandwidth of a rank, as 50GB/s"
          },
          "gamma": {
            "type": "string",
            "minLength": 1,
            "maxLength": 60,
            "description": "bandwidth of reducing, as 100GB/s"
          },
          "kind": {
            "type": "string",
            "enum": ["nvlink", "pci", "network"],
            "description": "NCCL: what it is; left out, nvlink inside a node, network between"
          },
          "ring": {
            "type": "string",
            "minLength": 1,
            "maxLength": 60,
            "description": "NCCL: channels of rings and the bandwidth of each, as 12x30GB/s"
          },
          "tree": {
            "type": "string",
            "minLength": 1,
            "maxLength": 60,
            "description": "NCCL: channels of trees; left out, as of rings"
          },
          "nvls": {
            "type": "string",
            "minLength": 1,
            "maxLength": 60,
            "description": "NCCL: channels of switches that reduce, inside a node"
          },
          "latency": {
            "type": "number",
            "minimum": 0.01,
            "maximum": 100,
            "default": 1,
            "description": "NCCL: measured latency over that of NCCL's model"
          },
          "speed": {
            "type": "number",
            "minimum": 0.01,
            "maximum": 100,
            "default": 1,
            "description": "NCCL: measured bandwidth over that of NCCL's model"
          },
          "fill": {
            "type": "number",
            "minimum": 0,
            "maximum": 100,
            "default": 0,
            "description": "NCCL: what filling a pipeline takes, see docs/simulate-scenarios.md"
          }
        }
      }
    }
  }
})";

}  // namespace lockstep::sim
