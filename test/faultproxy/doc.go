// Package faultproxy stands between one controller and the API server, and makes
// trouble by rule: it loses answers, holds events back, refuses requests, freezes
// watches, serves an old world. What it can't know, it doesn't invent: the requests
// that it lets through reach a real API server, and so do their conditions.
//
// A proxy is put in front of an API server, and the controller is given the
// configuration that leads to the proxy:
//
//	p, err := faultproxy.Start(faultproxy.Options{Target: config})
//	controller := start(p.Config(config))
//
// A rule says which requests, or which events of watches, and what is done to them:
//
//	// The first hand-out happens, but the controller never hears of it.
//	lost := p.Add(faultproxy.Rule{
//		Match: faultproxy.Match{Verb: "patch", Resource: "pods"},
//		Times: 1,
//		Do:    faultproxy.LoseAnswer(faultproxy.Reset()),
//	})
//	err = lost.WaitFired(ctx, 1)
//
//	// From the next Pod's event on, the controller sees no Pod change.
//	held := p.Add(faultproxy.Rule{
//		Match: faultproxy.Match{Verb: "watch", Resource: "pods"},
//		Do:    faultproxy.HoldStream(),
//	})
//	held.Release() // and now it sees all of it
//
// Rules come and go while requests are under way. All rules that match a request are
// put around it, the first one added outermost.
//
//	proxy.go      Start, Config: the way of a request, from top to bottom
//	match.go      Match: which requests and events
//	rule.go       Rule, Fault: what is done to them, how often it was, when it ends
//	requests.go   actions on requests: Refuse, LoseAnswer, HoldRequest, LateCommit, ...
//	events.go     actions on the events of watches: HoldStream, DropEvents, EndStream, ...
//	bodies.go     actions on the bytes of an answer: StallBody, CutBody
//	pretend.go    PretendDone: success for a write that never happened
//	reply.go      Reply: what a client is told instead of the truth
//	snapshot.go   Record, LaggingServer, OldWorld: time travel
//	watch.go      one watch that passes through
//	frames.go     how events are written on the wire, in JSON and in protobuf
//	facts.go      what is read out of a request and of an answer
//	log.go        what happened: Request, Delivery
//	conns.go      the clients' TCP connections: BlackHole, Cut
//	certs.go      the proxy's own certificate
package faultproxy
