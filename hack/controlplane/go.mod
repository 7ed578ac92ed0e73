// The local control plane and the programs that run it, apart from the product so
// that what they need reaches nobody else. Standard library only.
module warmpool.dev/controller/hack/controlplane

go 1.26.0
