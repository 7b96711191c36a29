# The container action: the static binary, git and a small shell, nothing else.
# Build: docker build -t overhaul .

FROM rust:1.95-bookworm AS build
# Debian's stable releases change for security only, and old versions go from its servers.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends musl-tools \
 && rm -rf /var/lib/apt/lists/* \
 && rustup target add "$(uname -m)-unknown-linux-musl"
WORKDIR /src
COPY . .
RUN target="$(uname -m)-unknown-linux-musl" \
 && cargo build --release --locked --bin overhaul --target "$target" \
 && install -D "target/$target/release/overhaul" /out/overhaul

FROM debian:bookworm-slim AS root
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends busybox-static ca-certificates git \
 && rm -rf /var/lib/apt/lists/*
COPY image/root.sh /root.sh
RUN /root.sh /out

FROM scratch
COPY --from=root /out /
COPY --from=build /out/overhaul /usr/local/bin/overhaul
ENV PATH=/usr/local/bin:/usr/bin:/bin SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
# No USER: GitHub runs container actions as root and mounts a workspace that only root may write.
# Workers are put behind walls by the binary; elsewhere run the image with --user.
# As process 1 the binary passes signals on and reaps what its children leave behind.
ENTRYPOINT ["/usr/local/bin/overhaul"]
CMD ["--help"]
