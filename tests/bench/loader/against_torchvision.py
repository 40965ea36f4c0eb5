"""The loader beside torchvision's on the same pictures: interleaved repeats, medians, ratios.

Called by against_torchvision, which sees to what is needed here.
"""

import argparse
import csv
import pathlib
import statistics
import subprocess
import time
import warnings

import numpy
import torch
import torchvision
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms
from torchvision.transforms import v2

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet


class Pictures(Dataset):
    def __init__(self, folder):
        rows = csv.DictReader(open(folder / "captions.csv", newline=""))
        self.files = [str(folder / row["image"]) for row in rows if row["image"]]

    def __len__(self):
        return len(self.files)


class ByPillow(Pictures):
    """As ImageFolder and most training scripts do: Pillow decodes and scales."""

    transform = transforms.Compose([
        transforms.Resize((224, 224)),
        transforms.ToTensor(),
        transforms.Normalize(MEAN, DEVIATION),
    ])

    def __getitem__(self, index):
        with Image.open(self.files[index]) as image:
            return self.transform(image.convert("RGB"))


class ByTensors(Pictures):
    """As torchvision recommends for speed: torchvision.io decodes, bytes are scaled as tensors."""

    transform = v2.Compose([
        v2.Resize((224, 224), antialias=True),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(MEAN, DEVIATION),
    ])

    def __getitem__(self, index):
        data = torchvision.io.read_file(self.files[index])
        return self.transform(torchvision.io.decode_jpeg(data, torchvision.io.ImageReadMode.RGB))


PEERS = {"torchvision, Pillow": ByPillow, "torchvision, tensors": ByTensors}


def of_data_loader(loader):
    start = time.perf_counter()
    images = sum(len(batch) for batch in loader)
    return images / (time.perf_counter() - start)


def of_lockstep(options, workers):
    command = [options.loader, str(options.data), "--workers", str(workers),
               "--batch", str(options.batch), "--epochs", "2"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(out.split()[0])


def check_equal(options):
    """Both sides do the same work: their first picture has the same values, or nearly."""
    array = options.data / "first.npy"
    subprocess.run([options.loader, str(options.data), "--first", str(array)], check=True)
    ours = torch.from_numpy(numpy.load(array))
    array.unlink()
    differences = (f"{(ours - pictures(options.data)[0]).abs().max().item():.4f} ({name})"
                   for name, pictures in PEERS.items())
    print("largest difference on the first picture: " + ", ".join(differences))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--loader", required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    print(f"torch {torch.__version__}, torchvision {torchvision.__version__}, "
          f"{len(Pictures(options.data))} pictures, batches of {options.batch}, "
          f"{options.repeats} repeats; images a second: median (least to most)")
    check_equal(options)
    for workers in options.workers:
        peers = {
            name: DataLoader(pictures(options.data), batch_size=options.batch,
                             num_workers=workers, persistent_workers=True)
            for name, pictures in PEERS.items()
        }
        rates = {"lockstep": []} | {name: [] for name in peers}
        for loader in peers.values():  # starts the workers, warms the caches
            of_data_loader(loader)
        for _ in range(options.repeats):
            rates["lockstep"].append(of_lockstep(options, workers))
            for name, loader in peers.items():
                rates[name].append(of_data_loader(loader))
        ours = rates["lockstep"]
        print(f"{workers} worker{'s' if workers > 1 else ''}")
        for name, measured in rates.items():
            ratio = statistics.median(o / m for o, m in zip(ours, measured))
            print(f"  {name:<22} {statistics.median(measured):7.1f}  "
                  f"({min(measured):.1f} to {max(measured):.1f})"
                  + ("" if name == "lockstep" else f"   lockstep / it: {ratio:.2f}"),
                  flush=True)
        del peers


if __name__ == "__main__":
    main()
