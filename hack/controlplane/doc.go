// Package controlplane runs a real Kubernetes control plane on this machine: etcd,
// one or more kube-apiservers and, on request, kube-controller-manager,
// kube-scheduler and kwok with simulated nodes. No container engine, no image,
// nothing downloaded but Go modules.
//
// Each component is a process of its own, so that a test can kill, freeze, restart
// or double it, or stand between two of them.
//
//	build.go          makes the six binaries, once
//	controlplane.go   Start and Stop: the story from top to bottom
//	components.go     the command line of each component
//	etcdlink.go       the way from an API server to etcd, which can be cut
//	process.go        one component: Kill, Freeze, Thaw, Stop, Restart, its log
//	audit.go          what was written to the API servers, and by whom
//	state.go          Attach and Down: a control plane that another program started
//	testing.go        ForTest, Shared and RunTests
//
// # A control plane of one's own
//
// A test that breaks things starts its own; it is gone when the test ends, and the
// ends of the logs are shown if the test failed:
//
//	cp := controlplane.ForTest(t, controlplane.Options{APIServers: 2})
//	cp.APIServers[1].Freeze()
//
// # A shared one
//
// Test packages are processes of their own. Those that only use a control plane,
// each in its own namespaces, share one: start it first, name its folder in
// WARMPOOL_CONTROLPLANE, and let each package's TestMain call RunTests:
//
//	eval "$(go run ./cmd/controlplane up)"   # sets KUBECONFIG and WARMPOOL_CONTROLPLANE
//	go test ./...
//	go run ./cmd/controlplane down
//
// Without the variable each package starts its own, with the same result, later.
// A control plane that is shared can't be broken: Kill, Freeze and the like are
// refused with ErrShared.
package controlplane
