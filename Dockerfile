# syntax=docker/dockerfile:1
# The container action. Build: docker build -t overhaul .

FROM rust:1-bookworm AS build
WORKDIR /src
# Static where the target exists for this toolchain, else against the image's own libc: the final
# image has the same Debian.
RUN apt-get update \
 && apt-get install -y --no-install-recommends musl-tools \
 && rm -rf /var/lib/apt/lists/* \
 && (rustup target add "$(uname -m)-unknown-linux-musl" || true)
COPY Cargo.toml Cargo.lock ./
COPY src src
RUN target="$(uname -m)-unknown-linux-musl"; \
    rustup target list --installed | grep -qx "$target" || target="$(rustc -vV | sed -n 's/^host: //p')"; \
    cargo build --release --locked --target "$target" \
 && install -D "target/$target/release/overhaul" /out/overhaul

FROM debian:bookworm-slim
# git for everything remote; the certificates for every endpoint.
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates git \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /out/overhaul /usr/local/bin/overhaul
# No USER: GitHub runs container actions as root and mounts a workspace that only root may write.
# Workers are put behind walls by the binary; elsewhere run the image with --user.
# As process 1 the binary passes signals on and reaps what its children leave behind.
ENTRYPOINT ["/usr/local/bin/overhaul"]
CMD ["--help"]
