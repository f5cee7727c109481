# kvgauge alone: one static program on an empty base, no shell, no library. Unbuilt: there was no engine
# at hand where this was written. What it does is tested without one: the same build runs in an empty root
# folder (tests/real_chroot.rs).
#
#   docker build -t kvgauge:0.1.0 .
#   docker run --rm --network host kvgauge:0.1.0 serve
#   docker run --rm -p 30080:30080 -p 127.0.0.1:30090:30090 kvgauge:0.1.0 \
#       serve --listen :30080 --admin :30090 --upstream http://router:30001 --source decode=http://decode:30002
#
# There is no HEALTHCHECK, as there is nothing else in it that could ask: let the engine ask /healthz and
# /readyz at the operators' listener, as config/kubernetes/sidecar.yaml does.

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY Cargo.toml Cargo.lock build.rs ./
COPY src src
COPY profile profile
COPY benches benches
# With a target named the flags are not those of build scripts and macros, which can't be static. The
# second flag has random numbers asked of the kernel, not looked for in /dev.
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    target="$(rustc -vV | sed -n 's/^host: //p')" \
    && RUSTFLAGS='-C target-feature=+crt-static --cfg getrandom_backend="linux_getrandom"' \
       cargo build --release --locked --bin kvgauge --target "$target" \
    && install -D -m 755 "target/$target/release/kvgauge" /out/kvgauge

FROM scratch
# For sources at https addresses that name no ca_file.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/kvgauge /kvgauge
USER 65532:65532
EXPOSE 30080 30090
STOPSIGNAL SIGTERM
ENTRYPOINT ["/kvgauge"]
CMD ["serve"]
