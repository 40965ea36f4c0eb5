"""The ranks of a job as a grid of dimensions, and the process groups along them."""

from dataclasses import dataclass


@dataclass
class Group:
    name: str
    ranks: list  # in the order of group ranks
    purpose: str


class Mesh:
    """Dimensions by name, the slowest first: rank = ((a * size_b) + b) * size_c + c."""

    def __init__(self, **sizes):
        self.sizes = sizes
        self.world = 1
        for size in sizes.values():
            self.world *= size
        self.groups = {}  # by name, in the order of creation
        self._group_of = {}
        self.add("world", range(self.world), "default_pg", name="world")

    def add(self, label, ranks, purpose, name=None):
        """A group that its ranks know as `label`; a rank has one group of each label."""
        name = name or f"{label}{sum(g.startswith(label) for g in self.groups)}"
        self.groups[name] = Group(name, list(ranks), purpose)
        for rank in ranks:
            self._group_of[label, rank] = name

    def split(self, label, over, purpose):
        """Groups of the ranks that differ only in the dimensions `over`."""
        members = {}
        for rank in range(self.world):
            place = self.place(rank)
            others = tuple(place[d] for d in self.sizes if d not in over)
            members.setdefault(others, []).append(rank)
        for ranks in sorted(members.values()):
            self.add(label, ranks, purpose)

    def call_world(self, label):
        """Lets ranks find the group of all under `label` too."""
        for rank in range(self.world):
            self._group_of[label, rank] = "world"

    def place(self, rank):
        """The coordinate of a rank in each dimension."""
        place = {}
        for dimension, size in reversed(self.sizes.items()):
            place[dimension] = rank % size
            rank //= size
        return place

    def size(self, dimension):
        return self.sizes.get(dimension, 1)

    def name_of(self, label, rank):
        """The name of the rank's group of that label, or None."""
        return self._group_of.get((label, rank))

    def ranks_of(self, label, rank):
        """The ranks of the rank's group of that label; itself alone where it has none."""
        name = self.name_of(label, rank)
        return self.groups[name].ranks if name else [rank]

    def shared_groups(self, rank):
        """The rank's groups of two ranks or more, in the order of creation."""
        return [g.name for g in self.groups.values() if rank in g.ranks and len(g.ranks) > 1]
