"""A job of which every simulator can be asked, and how each of them is told it.

`ranks` do the same `times` times: `work_us` microseconds of work, and a ring all-reduce of `size`
bytes that `ranks` divide. A hop costs LATENCY_PS and PS_PER_BYTE, which is 500 ns and 50 GB/s.
"""
import dataclasses

LATENCY_PS = 500_000
PS_PER_BYTE = 20


@dataclasses.dataclass(frozen=True)
class Job:
    name: str
    ranks: int
    times: int
    work_us: int
    size: int

    @property
    def chunk(self):
        return self.size // self.ranks

    @property
    def hops(self):
        """The rounds of one all-reduce: in each, every rank sends a message to the next one."""
        return 2 * (self.ranks - 1)

    @property
    def messages(self):
        return self.times * self.hops * self.ranks

    @property
    def expected_ps(self):
        hop = LATENCY_PS + self.chunk * PS_PER_BYTE
        return self.times * (self.work_us * 1_000_000 + self.hops * hop)


# Chakra execution traces: https://github.com/mlcommons/chakra, schema/protobuf/et_def.proto. They are
# written by hand, since Python's protobuf is not everywhere.


def _varint(number):
    data = b""
    while number > 127:
        data += bytes([number & 127 | 128])
        number >>= 7
    return data + bytes([number])


def _field(number, value):
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _node(number, kind, attributes, micros=0):
    """One that waits for the node before it."""
    data = _field(1, number) + _field(2, b"node") + _field(3, kind)
    if number > 1:
        data += _field(5, number - 1)
    if micros:
        data += _field(7, micros)
    for name, field, value in attributes:
        data += _field(10, _field(1, name) + _field(field, value))
    return data


def write_chakra(job, folder):
    """A file for each rank, job.RANK.et; all of them alike."""
    folder.mkdir()
    messages = [_field(1, b"0.0.4")]
    for _ in range(job.times):
        if job.work_us:
            messages.append(_node(len(messages), 4, [(b"is_cpu_op", 27, 0), (b"num_ops", 13, 1),
                                                     (b"tensor_size", 13, 1)], job.work_us))
        messages.append(_node(len(messages), 7, [(b"is_cpu_op", 27, 0), (b"comm_type", 13, 0),
                                                 (b"comm_size", 13, job.size)]))
    data = b"".join(_varint(len(message)) + message for message in messages)
    for rank in range(job.ranks):
        (folder / f"job.{rank}.et").write_bytes(data)


def write_goal(job, file):
    """LogGOPSim's schedule: sends and receives that wait for the receive before them."""
    with open(file, "w") as out:
        out.write(f"num_ranks {job.ranks}\n")
        for rank in range(job.ranks):
            after, previous = (rank + 1) % job.ranks, (rank - 1) % job.ranks
            label, last = 0, None
            lines = [f"\nrank {rank} {{"]
            for _ in range(job.times):
                if job.work_us:
                    label += 1
                    lines.append(f"l{label}: calc {job.work_us * 1_000_000}")
                    if last:
                        lines.append(f"l{label} requires l{last}")
                    last = label
                for _ in range(job.hops):
                    for action in (f"send {job.chunk}b to {after}",
                                   f"recv {job.chunk}b from {previous}"):
                        label += 1
                        lines.append(f"l{label}: {action} tag 0")
                        if last:
                            lines.append(f"l{label} requires l{last}")
                    last = label
            out.write("\n".join(lines) + "\n}\n")
