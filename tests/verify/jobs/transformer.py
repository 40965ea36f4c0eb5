"""Jobs that split the model, as Megatron does: by tensors, sequences, stages, experts and data."""

from faults import point
from schedules import rows_of
from training import new_programs, train


def transformer(mesh, rng, fault, choices):
    programs = new_programs(mesh, rng)
    for program in programs:
        rank = Rank(program, fault, choices)
        train(program, fault, choices, rank.step, rank.evaluate, part=rank.replica())
    return programs


class Rank:
    """A rank's step. Its stage is its place in the pipeline."""

    def __init__(self, program, fault, choices):
        self.program, self.fault, self.choices = program, fault, choices
        self.pipeline = program.members("pipeline")
        self.stage = self.pipeline.index(program.rank)
        self.stages = len(self.pipeline)

    def replica(self):
        return self.program.mesh.place(self.program.rank)["data"]

    def microbatches(self):
        """Replicas may differ: gradients alone connect them."""
        more = (self.fault.more("one_microbatch_more", self.program)
                - self.fault.more("one_microbatch_less", self.program))
        if self.choices.uneven_accumulation:
            more += (self.replica() + self.program.step) % 2
        # Interleaved schedules work in rounds.
        unit = self.stages if self.choices.schedule == "interleaved" else 1
        return self.choices.microbatches + unit * more

    def step(self):
        if self.choices.broadcast_batch and self.program.has("tensor"):
            self.broadcast_batch()
        if self.choices.schedule == "fused":
            self.fused()
        else:
            self.scheduled()
        point(self.program, self.fault, "gradients")
        self.reduce_gradients()
        point(self.program, self.fault, "update")
        self.update()

    def broadcast_batch(self):
        for size, line in ((5, 20), (2048, 34)):
            self.program.call("tensor", "broadcast", size, f"data.py:{line}", dtype="int64",
                              root=self.program.members("tensor")[0], function="get_batch")

    # The pipeline on a common clock.

    def scheduled(self):
        chunks = self.choices.chunks
        rows = rows_of(self.choices.schedule, chunks, self.stages, self.microbatches())[self.stage]
        for action, messages in rows:
            if action and action.kind == "W":
                self.program.compute(0.5)
            elif action:
                self.compute(action.kind != "F", action.microbatch, action.chunk)
            self.exchange([self.operation(m) for m in messages if not self.skips(m)],
                          "schedules.py:2210")

    def operation(self, message):
        sends = message.source == self.stage
        peer = self.pipeline[message.target if sends else message.source]
        wrong = sends and message.kind == "F"
        return ("send" if sends else "recv", peer, self.size(message.microbatch, wrong))

    def skips(self, message):
        return (message.source == self.stage and message.kind == "F"
                and message.microbatch == self.fault.microbatch
                and self.fault.strikes("skips_send", self.program))

    # 1F1B as Megatron writes it: what is sent and received at one moment is one exchange.

    def fused(self):
        count = self.microbatches()
        ahead = self.pipeline[self.stage + 1] if self.stage + 1 < self.stages else None
        behind = self.pipeline[self.stage - 1] if self.stage else None
        warmup = min(count, self.stages - self.stage - 1)
        for m in range(warmup):
            self.exchange([("recv", behind, self.size(m))], "schedules.py:1100")
            self.compute(False, m)
            if not (m == self.fault.microbatch and self.fault.strikes("skips_send", self.program)):
                self.exchange([("send", ahead, self.size(m, True))], "schedules.py:1130")
        if count > warmup:
            self.exchange([("recv", behind, self.size(warmup))], "schedules.py:1150")
        self.steady(count, warmup, ahead, behind)
        for m in range(count - warmup, count):
            self.exchange([("recv", ahead, self.size(m))], "schedules.py:1240")
            self.compute(True, m)
            self.exchange([("send", behind, self.size(m))], "schedules.py:1260")

    def steady(self, count, warmup, ahead, behind):
        for back in range(count - warmup):
            m = warmup + back
            self.compute(False, m)
            self.exchange([("send", ahead, self.size(m, True)), ("recv", ahead, self.size(back))],
                          "schedules.py:1180")
            self.compute(True, back)
            if m + 1 == count:
                self.exchange([("send", behind, self.size(back))], "schedules.py:1210")
            else:
                self.exchange([("send", behind, self.size(back)),
                               ("recv", behind, self.size(m + 1))], "schedules.py:1215")

    def size(self, microbatch, forward_send=False):
        size = self.choices.activations
        if self.choices.lengths_vary:
            size += (self.program.step * 5 + microbatch * 3) % 4 * 64
        if (forward_send and microbatch == self.fault.microbatch
                and self.fault.strikes("wrong_message_size", self.program)):
            size += 128
        return size

    def exchange(self, messages, at):
        """One kernel, or single messages in an order that suits both sides of each pair."""
        messages = [m for m in messages if m[1] is not None]
        if not messages:
            return
        if not self.choices.batched:
            rank = self.program.rank
            messages.sort(key=lambda m: rank if m[0] == "send" else m[1])
            if self.fault.strikes("message_order", self.program):
                messages.reverse()
        self.program.wait(self.program.exchange("pipeline", messages, at,
                                                batched=self.choices.batched))

    def evaluate(self):
        """A batch goes through the pipeline. No experts: replicas evaluate by themselves."""
        if self.stage:
            self.exchange([("recv", self.pipeline[self.stage - 1], self.choices.activations)],
                          "schedules.py:3010")
        self.context_ring(False, None, 1)
        self.tensor_parallel(False)
        if self.stage + 1 < self.stages:
            self.exchange([("send", self.pipeline[self.stage + 1], self.choices.activations)],
                          "schedules.py:3025")

    # What a stage computes.

    def compute(self, backward, microbatch, chunk=0):
        layers = range(self.choices.layers)
        for layer in reversed(layers) if backward else layers:
            self.context_ring(backward, microbatch, layer)
            self.tensor_parallel(backward)
            self.experts(backward, microbatch, layer)
            self.program.compute(0.5)
        if microbatch == 0 and chunk < self.stages:
            point(self.program, self.fault, "backward" if backward else "forward")

    def context_ring(self, backward, microbatch, layer):
        """Keys and values go around the ranks that share a sequence."""
        ring = self.program.members("context")
        me, size = ring.index(self.program.rank), self.choices.activations // 4
        for hop in range(len(ring) - 1):
            messages = [("send", ring[(me + 1) % len(ring)], size),
                        ("recv", ring[me - 1], size)]
            if (self.fault.strikes("skips_ring_receive", self.program) and layer == hop == 0
                    and not backward and microbatch == self.fault.microbatch):
                del messages[1]
            self.program.wait(self.program.exchange("context", messages, "attention/ring.py:88",
                                                    function="ring_attention"))
            self.program.compute(0.3)

    def tensor_parallel(self, backward):
        if not self.program.has("tensor"):
            return
        ranks, line = len(self.program.members("tensor")), 100 if backward else 0
        full = self.choices.activations
        if self.choices.sequence_parallel:
            self.program.call("tensor", "all_gather_into_tensor", full // ranks,
                              f"tensor_parallel/layers.py:{310 + line}", dtype="bfloat16", out=full,
                              function="forward")
            self.program.compute(0.5)
            self.program.call("tensor", "reduce_scatter_tensor", full,
                              f"tensor_parallel/layers.py:{330 + line}", dtype="bfloat16",
                              out=full // ranks, function="forward")
        else:
            self.program.compute(0.5)
            self.program.call("tensor", "all_reduce", full,
                              f"tensor_parallel/mappings.py:{28 + line}", dtype="bfloat16",
                              function="forward")

    def experts(self, backward, microbatch, layer):
        """Tokens go to their experts and back; each batch decides how many."""
        if not self.program.has("expert") or layer % 2:
            return
        here = microbatch == self.fault.microbatch and backward == self.fault.backward
        if here and self.fault.strikes("skips_experts", self.program):
            return
        members = self.program.members("expert")
        me = members.index(self.program.rank)

        def tokens(sender, expert):
            mixed = (sender * 7919 + expert * 104729 + self.program.step * 31 + microbatch * 17
                     + layer * 13 + members[0] * 101) % 97
            return mixed + 1 if mixed > 12 else 0

        sent = [tokens(me, e) for e in range(len(members))]
        received = [tokens(s, me) for s in range(len(members))]
        if backward:
            sent, received = received, sent
        expected = list(received)
        wrong = self.fault.strikes("wrong_splits", self.program)
        if wrong and here and not backward and layer == 0:
            expected[self.fault.index % len(members)] += 3
        line = 40 if backward else 0
        self.all_to_all(sent, expected, f"moe/dispatch.py:{140 + line}", "token_dispatch")
        self.program.compute(0.6)
        self.all_to_all(received, sent, f"moe/dispatch.py:{160 + line}", "token_combine")

    def all_to_all(self, sent, received, at, function):
        self.program.call("expert", "all_to_all_single", [sum(sent), 64], at, dtype="bfloat16",
                          out=[sum(received), 64], splits=(sent, received), function=function)

    # After the passes.

    def reduce_gradients(self):
        reductions = self.gradient_buckets()
        skips = self.fault.strikes("skips_embedding", self.program)
        if self.fault.strikes("swapped_groups", self.program):
            self.reduce_embedding()
            self.program.wait(reductions)
            return
        self.program.wait(reductions)
        if not skips:
            self.reduce_embedding()

    def gradient_buckets(self):
        if not self.program.has("data"):
            return []
        size, replicas = self.choices.bucket_size, len(self.program.members("data"))
        left_out = self.fault.index % self.choices.buckets
        skips = self.fault.strikes("skips_bucket", self.program)
        buckets = [b for b in range(self.choices.buckets) if not (skips and b == left_out)]
        if self.choices.sharded_optimizer:
            return [self.program.call("data", "reduce_scatter_tensor", size * replicas,
                                      "distributed/param_and_grad_buffer.py:160", later=True,
                                      out=size, function="start_grad_sync",
                                      names=[f"stage{self.stage}.bucket{b}"]) for b in buckets]
        return [self.program.call("data", "all_reduce", size,
                                  "distributed/param_and_grad_buffer.py:170", later=True,
                                  function="start_grad_sync",
                                  names=[f"stage{self.stage}.bucket{b}"]) for b in buckets]

    def reduce_embedding(self):
        """The first and the last stage hold the same embedding."""
        if self.program.has("embedding"):
            self.program.call("embedding", "all_reduce", self.choices.bucket_size * 2,
                              "finalize_model_grads.py:90", function="allreduce_embedding_grads")

    def update(self):
        if self.choices.clip and self.program.has("model"):
            self.program.call("model", "all_reduce", 1, "optimizer/clip_grads.py:120",
                              function="get_grad_norm")
            self.program.synchronise()
        self.program.compute(1)
        if self.choices.sharded_optimizer and self.program.has("data"):
            self.gather_parameters()
        last = self.stage == self.stages - 1
        logs = self.choices.log_every and self.program.step % self.choices.log_every == 0
        if logs and last and self.program.has("data"):
            self.program.call("data", "all_reduce", 1, "training.py:600", function="loss_func")
            self.program.synchronise()
        elif self.choices.loss_item:
            self.program.synchronise()

    def gather_parameters(self):
        size, replicas = self.choices.bucket_size, len(self.program.members("data"))
        self.program.wait([
            self.program.call("data", "all_gather_into_tensor", size,
                              "distributed/param_and_grad_buffer.py:220", dtype="bfloat16",
                              later=True, out=size * replicas, function="start_param_sync",
                              names=[f"stage{self.stage}.bucket{b}"])
            for b in range(self.choices.buckets)])
