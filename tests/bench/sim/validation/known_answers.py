"""Known answers: what the simulator says where it is known what it has to say.

Each case is (test, question, expected, answer). Times are whole picoseconds. What is expected is
a published integer, a formula evaluated here as a fraction, or a recurrence of our own in a few
lines; the simulator's code has no part in it.
"""
import random
from fractions import Fraction

from validation.calculators import Program

MIB = 1 << 20
LINK = ("500ns", "50GB/s")  # alpha, beta of the published workloads


def ps(nanos):
    """Picoseconds of a time in nanoseconds, which must be whole."""
    picos = Fraction(nanos) * 1000
    assert picos.denominator == 1, nanos
    return int(picos)


def ring(lockstep):
    """T1: one ring all-reduce of 1 MiB, by formula and message by message; the same under LogGP."""
    for level in ("closed-form", "message"):
        for ranks, nanos in ((8, "43700.16"), (64, "104287.68"), (512, "552861.12"),
                             (1024, "1064902.08")):
            yield ("T1", f"ring all-reduce, {ranks} ranks, 1 MiB, {level}", ps(nanos),
                   lockstep.collective("all_reduce", "ring", ranks, "1MiB", *LINK,
                                       "--level", level))
    # LogGP with L = 500, G = 1 ns/B, of which the first byte is free: alpha 499 ns, 1 GB/s.
    for ranks, nanos in ((512, 2603034), (1024, 3116058)):
        yield ("T1", f"the same under LogGP, {ranks} ranks", ps(nanos),
               lockstep.collective("all_reduce", "ring", ranks, "1MiB", "499ns", "1GB/s"))


def doubling(lockstep):
    """T2, T4: recursive doubling, and halving and doubling."""
    for ranks, nanos in ((64, "128829.12"), (1024, "214715.2")):
        for level in ("closed-form", "message"):
            yield ("T2", f"recursive doubling, {ranks} ranks, 1 MiB, {level}", ps(nanos),
                   lockstep.collective("all_reduce", "recursive_doubling", ranks, "1MiB", *LINK,
                                       "--level", level))
    yield ("T4", "halving and doubling, 8 ranks, 1 MiB", ps("39700.16"),
           lockstep.collective("all_reduce", "halving_doubling", 8, "1MiB", *LINK))


def compute_and_reduce(lockstep):
    """T3: 100 times 50 us of work and a ring all-reduce of 16 MiB."""
    program = Program()
    for _ in range(100):
        program.work(50_000).call("all_reduce", 4 * MIB, redop="sum")
    answer = lockstep.trace([program.lines] * 64, *LINK)
    yield ("T3", "64 ranks, 100 x (50 us, ring all-reduce of 16 MiB)",
           100 * (ps(50_000) + 126 * ps("5742.88")), answer["time_ps"])


def hierarchical(lockstep):
    """T5: eight nodes of eight, with equal and with different links."""
    def ring_ps(factor, size, alpha, rate):
        return factor * 7 * (ps(alpha) + ps(Fraction(size, 8) / rate))
    for inner, outer in (((500, 50), (500, 50)), ((1000, 400), (5000, 50))):
        expected = (2 * ring_ps(1, MIB, *inner)            # reduce-scatter, all-gather in the node
                    + ring_ps(2, Fraction(MIB, 8), *outer))  # all-reduce between the nodes
        yield ("T5", f"hierarchical, 8 x 8 ranks, {inner[1]} and {outer[1]} GB/s", expected,
               lockstep.collective("all_reduce", "hierarchical", 64, "1MiB",
                                   f"{inner[0]}ns,{outer[0]}ns",
                                   f"{inner[1]}GB/s,{outer[1]}GB/s", "--ranks-per-node", 8))


def one_forward_one_backward(forward, backward, micro_batches):
    """The end of a 1F1B step by its recurrence: stages in order, each with its own times."""
    stages = len(forward)
    order = []
    for s in range(stages):
        warm = min(stages - 1 - s, micro_batches)
        steady = [x for i in range(micro_batches - warm) for x in (("F", warm + i), ("B", i))]
        order.append([("F", i) for i in range(warm)] + steady
                     + [("B", i) for i in range(micro_batches - warm, micro_batches)])
    ended, place, free = {}, [0] * stages, [0] * stages
    while any(place[s] < len(order[s]) for s in range(stages)):
        for s in range(stages):
            while place[s] < len(order[s]):
                part, i = order[s][place[s]]
                if part == "F":
                    needs = [("F", s - 1, i)] if s > 0 else []
                else:
                    needs = [("F", s, i)] + ([("B", s + 1, i)] if s + 1 < stages else [])
                if any(need not in ended for need in needs):
                    break
                start = max([free[s]] + [ended[need] for need in needs])
                free[s] = start + (forward if part == "F" else backward)[s]
                ended[(part, s, i)] = free[s]
                place[s] += 1
    return max(free)


def pipelines(lockstep):
    """T6: times, idle times and peaks of activations in flight; in units of 1 us."""
    unit = ps(1000)
    for schedule in ("gpipe", "1f1b"):
        for p, m, time, idle in ((4, 8, 33, 9), (8, 32, 117, 21), (8, 8, 45, 21), (4, 4, 21, 9)):
            peaks = [m] * p if schedule == "gpipe" else [min(p - r, m) for r in range(p)]
            answer = lockstep.pipeline(schedule, p, m, "1us", "2us")
            yield ("T6", f"{schedule}, {p} stages, {m} micro-batches: time; idle; in flight",
                   (time * unit, [idle * unit] * p, peaks),
                   (answer["time_ps"], answer["idle_ps"], answer["peak_in_flight"]))
    for p, m, v, time, idle in ((4, 8, 2, 57, 9), (8, 32, 2, 213, 21), (8, 32, 4, 405, 21),
                                (4, 16, 4, 201, 9)):
        peaks = [min(2 * (p - r - 1) + (v - 1) * p + 1, m * v) for r in range(p)]
        answer = lockstep.pipeline("interleaved", p, m, "1us", "2us", "--chunks", v)
        yield ("T6", f"interleaved, {p} stages, {m} micro-batches, {v} chunks",
               (time * unit, [idle * unit] * p, peaks),
               (answer["time_ps"], answer["idle_ps"], answer["peak_in_flight"]))
    for (f, b, w), m in (((1, 1, 1), 8), ((3, 2, 1), 12)):
        p = 4
        for schedule, idle, peak in (("1f1b", (p - 1) * (f + b + w), p),
                                     ("zb-h1", (p - 1) * (f + b - w), p),
                                     ("zb-h2", (p - 1) * (f + b - 2 * w), 2 * p - 1)):
            answer = lockstep.pipeline(schedule, p, m, f"{f}us", f"{b}us",
                                       "--backward-weight", f"{w}us")
            yield ("T6", f"{schedule}, {p} stages, {m} micro-batches, F {f} B {b} W {w}: "
                         "idle; peak",
                   ([idle * unit] * p, peak),
                   (answer["idle_ps"], max(answer["peak_in_flight"])))
    answer = lockstep.pipeline("zbv", 4, 8, "1us", "1us", "--backward-weight", "1us")
    yield ("T6", "zbv, F = B = W, 4 stages, 8 micro-batches: idle", [0] * 4, answer["idle_ps"])
    chance = random.Random(6)
    for _ in range(8):
        p, m = chance.randint(2, 6), chance.randint(1, 12)
        forward = [chance.randint(1, 9) for _ in range(p)]
        backward = [chance.randint(1, 9) for _ in range(p)]
        times = [",".join(f"{t}us" for t in part) for part in (forward, backward)]
        yield ("T6", f"1f1b, unequal: F {forward} B {backward}, {m} micro-batches",
               one_forward_one_backward(forward, backward, m) * unit,
               lockstep.pipeline("1f1b", p, m, *times)["time_ps"])


def prefetch(lockstep):
    """T7: fully sharded; each layer's parameters are gathered while the one before computes."""
    ranks, layers = 4, 5
    for elements in (10_000, 40_000, 90_000):
        gather = 3 * (1000 + Fraction(4 * elements, 1))  # 1 us, 1 GB/s
        for compute in (100_000, 480_000, 700_000):
            program = Program().call("all_gather_into_tensor", elements, out=elements * ranks,
                                     **{"async": True})
            for layer in range(layers):
                program.wait(layer)
                if layer + 1 < layers:
                    program.call("all_gather_into_tensor", elements, out=elements * ranks,
                                 **{"async": True})
                program.work(compute)
            expected = gather + compute + (layers - 1) * max(gather, compute)
            yield ("T7", f"{layers} layers: gather {float(gather) / 1000:g} us, "
                         f"compute {compute / 1000:g} us",
                   ps(expected), lockstep.trace([program.lines] * ranks, "1us", "1GB/s")["time_ps"])


def modality(lockstep):
    """T8: text takes a, images b; each rank has images by chance q. Every sample exactly."""
    ranks, text, image, samples, q = 4, 30_000, 80_000, 40, Fraction(1, 3)
    reduce_ps = 6 * (ps(1000) + ps(1000))  # a ring over 4 ranks: 4,000 bytes, 1 us, 1 GB/s
    chance = random.Random(8)
    drawn = [[chance.random() < q for _ in range(ranks)] for _ in range(samples)]
    lockstep_turns = [row[0] for row in drawn]  # agreed: all ranks as the first one drew

    def policies():
        yield ("each its own batch", drawn, image - (image - text) * (1 - q) ** ranks)
        yield ("alternating, agreed", [[turn] * ranks for turn in lockstep_turns],
               q * image + (1 - q) * text)
        yield ("dummy images", [[True] * ranks for _ in drawn], Fraction(image))

    for name, batches, mean in policies():
        answers, exact = [], []
        for batch in batches:
            programs = [Program().work(image if has else text).call("all_reduce", 1000, redop="sum")
                        for has in batch]
            answers.append(lockstep.trace([p.lines for p in programs], "1us", "1GB/s")["time_ps"])
            exact.append(ps(max(image if has else text for has in batch)) + reduce_ps)
        yield ("T8", f"{name}: each of {samples} samples", exact, answers)
        # Four standard errors, and none where nothing is drawn.
        share = (mean - text) / (image - text)
        error = 4 * float(share * (1 - share) / samples) ** 0.5 * ps(image - text)
        measured = Fraction(sum(answers), samples)
        expected = Fraction(mean) * 1000 + reduce_ps
        yield ("T8", f"{name}: mean within 4 standard errors of "
                     f"{float(expected) / 1e6:.3f} us ({float(measured) / 1e6:.3f})",
               True, abs(measured - expected) <= error)


GOES_ON = ("goes on",)


def verdict(answer):
    """GOES_ON, or ("hangs", rule, ranks that are to blame)."""
    if not answer["stuck"]:
        return GOES_ON
    first = answer["report"]["findings"][0]
    return ("hangs", first["rule"], first["culprits"])


def deadlocks(lockstep):
    """T9: programs that hang, with who is at fault, and their healthy twins."""
    def ask(programs):
        return verdict(lockstep.trace([p.lines for p in programs], "1us", "1GB/s"))

    def reduce(program, elements, what, group="world"):
        return program.call("all_reduce", elements, group=group, redop="sum", what=[what])

    def gather(program):
        return program.call("all_gather", 500, out=4000, what=["c"])

    def usual():
        return gather(reduce(reduce(Program(), 1000, "a"), 2000, "b"))

    def but_rank_3(program):
        return [program if r == 3 else usual() for r in range(8)]

    yield ("T9", "8 ranks, all alike", GOES_ON, ask(but_rank_3(usual())))
    yield ("T9", "rank 3 leaves out a call", ("hangs", "missing-collective", [3]),
           ask(but_rank_3(gather(reduce(Program(), 1000, "a")))))
    # It hangs in the first of the two, and until then all that shows is that one is missing.
    yield ("T9", "rank 3 swaps two calls", ("hangs", "missing-collective", [3]),
           ask(but_rank_3(reduce(gather(reduce(Program(), 1000, "a")), 2000, "b"))))
    yield ("T9", "rank 3 gives another size", ("hangs", "size-mismatch", [3]),
           ask(but_rank_3(gather(reduce(reduce(Program(), 1000, "a"), 2001, "b")))))

    def branch(rank, skips=False):
        name, members = ("left", [0, 1, 2, 3]) if rank < 4 else ("right", [4, 5, 6, 7])
        program = Program((name, members))
        return reduce(program if skips else reduce(program, 8, "part", name), 8, "whole")
    yield ("T9", "subgroups that all take their path", GOES_ON, ask([branch(r) for r in range(8)]))
    # That the part comes before the whole, the ranks of the other subgroup show.
    yield ("T9", "rank 5 leaves out its subgroup's call", ("hangs", "missing-collective", [5]),
           ask([branch(r, skips=r == 5) for r in range(8)]))

    def message(program, op, peer):
        return program.call(op, 8, peer=peer, ptag=0)
    sends_first = [message(message(Program(), "send", 1 - r), "recv", 1 - r) for r in range(2)]
    turned = message(message(Program(), "recv", 0), "send", 0)
    yield ("T9", "two stages that both send first", ("hangs", "p2p-cycle", []), ask(sends_first))
    yield ("T9", "one sends first, one receives first", GOES_ON, ask([sends_first[0], turned]))

    def two_groups(first, second, streams):
        program = Program(("a", [0, 1]), ("b", [0, 1]))
        for group in (first, second):
            reduce(program, 8, group, group)
            program.lines[-1].update({"async": True, "stream": streams[group]})
        return program.wait(0).wait(1)
    for streams, expected in (({"a": "one", "b": "one"}, ("hangs", "cross-group-deadlock", [])),
                              ({"a": "one", "b": "two"}, GOES_ON)):
        count = "one stream" if streams["a"] == streams["b"] else "two streams"
        yield ("T9", f"two groups in opposite orders on {count}",
               expected, ask([two_groups("a", "b", streams), two_groups("b", "a", streams)]))

    def images(has, calls):
        program = Program().holds(0, *(["image", "text"] if has else ["text"]))
        program.call("all_reduce", 64, redop="sum", what=["text.w"])
        if calls:
            program.call("all_reduce", 64, redop="sum", what=["image.w"])
        return program.call("barrier")
    yield ("T9", "rank 2 has no image, and its branch is masked",
           ("hangs", "modality-divergence", [2]), ask([images(r != 2, r != 2) for r in range(4)]))
    yield ("T9", "the same with a dummy image", GOES_ON,
           ask([images(r != 2, True) for r in range(4)]))


def shared_link(lockstep):
    """T10: ring all-reduces that share their links, max-min fairly."""
    alone = ps("36700.16")  # 14 messages of 128 KiB at 50 GB/s, no latency
    yield ("T10", "1 MiB beside 2 MiB, 8 ranks", [2 * alone, 3 * alone],
           lockstep.together(8, ["1MiB", "2MiB"], "0ns", "50GB/s"))
    yield ("T10", "three of 1 MiB", [3 * alone] * 3,
           lockstep.together(8, ["1MiB"] * 3, "0ns", "50GB/s"))
    yield ("T10", "two of 1 MiB, with latency", [14 * (ps(500) + 2 * ps("2621.44"))] * 2,
           lockstep.together(8, ["1MiB"] * 2, *LINK))


def known_answers(lockstep):
    """All cases, in the order of their tests."""
    answered = [case for cases in (ring, doubling, compute_and_reduce, hierarchical, pipelines,
                                   prefetch, modality, deadlocks, shared_link)
                for case in cases(lockstep)]
    return sorted(answered, key=lambda case: int(case[0][1:]))
