# The image of artifacts/deploy. Any builder will do:
#   docker build -t REGISTRY/warmpool-controller:TAG .
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o /warmpool-controller .

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /warmpool-controller /warmpool-controller
USER 65532:65532
ENTRYPOINT ["/warmpool-controller"]
