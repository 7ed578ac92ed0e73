// Package freshness keeps a controller from acting on a stale cache.
//
// An informer's cache is a copy that is always a little old. A controller that
// forgets it creates twice, hands the same thing to two users, deletes what it
// should keep and writes old over new. Each file here is one guard against one of
// the ways in which that happens; its first comment says which, how the guard
// works, what it costs, and where one would see its absence. The guards know
// nothing of what a controller does: they are put around its configuration, its
// informers, its queue and its reconcile function, and are generic over its key.
//
//	guards.go      all of them together: New, Feed, Handle, Chain, Run
//
//	gate.go        no work before the caches are complete; and why they aren't (diagnosis.go, reason.go)
//	feed.go        lists that are quorum reads, watches that end and go on (tap.go, pause.go), a signal of progress (progress.go)
//	watermark.go   no old event over new state
//	transport.go   every write of a key is noted, from the requests themselves (wire.go)
//	ledger.go      what a key has written and must see (verdict.go), in stores that may go back (store.go),
//	               with answers that may be lost (doubt.go)
//	backlog.go     stale keys wait, and come back by the very event that they wait for
//	confirm.go     the second check, before the first write
//	validator.go   what the others have missed, by comparison with the API server (quorum.go)
//	fence.go       what a new leader must have seen
//	term.go        until when a leader may write
//	halves.go      connections of their own for reads and for writes
//	queue.go       who is served first
//	patch.go       no write that changes nothing
//	middleware.go  how guards are put around a reconcile function
//	metrics.go     what all of them did
//
// It stands on client-go alone (0.37 or newer, with the feature AtomicFIFO on).
package freshness
