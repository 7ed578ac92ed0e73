// Package claim takes Pods of warm pools, for programs that need one now: a CI system,
// a test grid, a server of notebooks.
//
//	clientset, err := versioned.NewForConfig(config)
//	pods := claim.New(clientset, "ci")
//
//	runner, err := pods.Acquire(ctx, claim.Options{Pool: "runners", Lifetime: time.Hour})
//	if err != nil {
//		return err
//	}
//	defer runner.Release(context.WithoutCancel(ctx))
//	return run(ctx, runner.PodIPs[0])
//
// Acquire creates a PodClaim and waits until a Pod is bound to it, by a watch of that
// one object: a program may wait for hours, and costs the API server one request every
// few minutes. The Pod is the caller's alone until Release deletes the claim, and with
// it the Pod.
//
// Whatever goes wrong, Acquire leaves no claim behind: it returns either a Claim or an
// error, and with an error what it had created is deleted, also where the API server's
// answer was lost. What it can't do is clean up after a program that has died, or after
// a create that something on the way holds for more than ten seconds and then delivers:
// Lifetime is for those, and Timeout for a program that dies while it waits.
//
// The program needs the verbs create, get, watch and delete on podclaims.warmpool.dev
// in the pool's namespace.
//
//	client.go   Client, Options, Acquire
//	create.go   one claim for each call, also where answers are lost
//	follow.go   waiting by watch
//	claim.go    Claim: Release, Wait
//	errors.go   FinishedError, and which errors pass by themselves
package claim
