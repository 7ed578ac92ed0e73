// Package environment is what tests of the whole controller need around it: a real
// control plane with the warm pool's definitions and rights installed, the
// controller as a process of its own that can be killed, namespaces, and somebody
// who plays the kubelet.
//
//	environment.go   RunTests, New: the control plane with what is installed on it
//	binary.go        the controller's program, built once, with -race if the tests are
//	controller.go    the controller's process: start, stop, kill
//	freeze.go        a controller that sleeps
//	proxy.go         a proxy between a controller and its API server
//	log.go           what it prints, and what must not be in it
//	namespace.go     a test's own namespace
//	objects.go       pools and claims: build, create, read
//	kubelet.go       makes Pods Ready, and lets deleted ones go
//	node.go          the node that Pods run on
//	writes.go        what was written in a namespace, from the audit log
//	judge.go         the history of a namespace, and what is held against it
//	lease.go         the right to a lease in a namespace
//	wait.go          waiting for a condition, with a deadline
//	settle.go        waiting for pools and claims to get where they belong
//
// A package of tests shares one control plane and gives each test a namespace:
//
//	var env *environment.Environment
//
//	func TestMain(m *testing.M) {
//		os.Exit(environment.RunTests(m, func(e *environment.Environment) { env = e }))
//	}
//
//	func TestClaimIsBound(t *testing.T) {
//		t.Parallel()
//		ns := env.Namespace(t)
//		ns.StartKubelet()
//		ns.StartController()
//		ns.CreatePool(environment.Pool("runners", 1))
//		ns.CreateClaim(environment.Claim("build", "runners"))
//		ns.WaitBound("build")
//	}
//
// What a test asks is asked of the API server, never of the controller.
package environment
