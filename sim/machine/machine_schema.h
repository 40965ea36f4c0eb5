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
