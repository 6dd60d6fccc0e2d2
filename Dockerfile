# The server alone. Build: docker build -t ratelimiterd .
FROM rust:1.95-bookworm AS build
WORKDIR /source
COPY . .
RUN cargo build --release --locked -p ratelimiterd --features openai-tokenizer

FROM debian:bookworm-slim
RUN useradd --system --create-home --home-dir /var/lib/ratelimiterd ratelimiterd
COPY --from=build /source/target/release/ratelimiterd /usr/local/bin/ratelimiterd
USER ratelimiterd
WORKDIR /var/lib/ratelimiterd
EXPOSE 8080
ENTRYPOINT ["ratelimiterd"]
