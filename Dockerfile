# lockstep and lockstep-worker, which trains (LibTorch, Gloo, on CPUs), in a Debian 12 without compilers.
#
#   docker build -t lockstep .
#   docker run --rm lockstep run /opt/lockstep/share/lockstep/scenarios/modality/manual_hang_bad.yaml
#   docker run --rm -v "$PWD/dumps:/dumps:ro" lockstep verify /dumps
#
# Ranks share memory and stop each other: with more than a few, add --shm-size=1g.

FROM debian:bookworm-slim AS build
WORKDIR /src
COPY . .
# Where LibTorch is kept; the worker looks for it there.
ENV LOCKSTEP_CACHE=/opt/lockstep/cache
RUN apt-get update \
 && scripts/setup full \
 && LOCKSTEP_TORCH_DIR="$(scripts/fetch-torch)" cmake --preset full -DLOCKSTEP_TESTS=OFF \
 && cmake --build --preset full --target lockstep lockstep-worker \
 && install -D -t /opt/lockstep/bin build/full/lockstep build/full/lockstep-worker \
 && mkdir -p /opt/lockstep/share/lockstep \
 && cp -r examples scenarios sim/machines sim/plans /opt/lockstep/share/lockstep/ \
 && strip /opt/lockstep/bin/lockstep

FROM debian:bookworm-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends libarchive13 libyaml-cpp0.7 libsimdjson14 libsqlite3-0 \
      libprotobuf-lite32 libfmt9 libnettle8 libpng16-16 libturbojpeg0 libutf8proc2 libgomp1 python3-minimal \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/lockstep /opt/lockstep
ENV PATH=/opt/lockstep/bin:$PATH LOCKSTEP_WORKER=/opt/lockstep/bin/lockstep-worker
WORKDIR /work
ENTRYPOINT ["lockstep"]
CMD ["--help"]
