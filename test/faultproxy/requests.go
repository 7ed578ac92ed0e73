package faultproxy

// Actions on requests.

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// Do makes an action of a function. forward asks the next rule, and the last one the
// API server; call it once, or not at all. A nil answer cuts the client off. An answer
// may be changed before it is returned.
func Do(name string, f func(x *Exchange, forward func() *Answer) *Answer) Action {
	return Action{name: name, request: func(_ *Fault, x *Exchange, forward func() *Answer) *Answer { return f(x, forward) }}
}

// Refuse answers without asking the API server: the request never happens.
// Refuse(Reset()) is a request that was lost on its way, Refuse(Hang()) a black hole.
func Refuse(reply Reply) Action {
	return Action{name: "Refuse(" + reply.String() + ")", request: func(_ *Fault, x *Exchange, _ func() *Answer) *Answer {
		return reply.answer(&x.Request)
	}}
}

// Elsewhere sends the request to another API server than the proxy's: a load balancer
// that spreads what one client sends, its reads to one and its writes to another, say.
func Elsewhere(config *rest.Config) Action {
	return Action{name: "Elsewhere(" + config.Host + ")", request: func(f *Fault, x *Exchange, forward func() *Answer) *Answer {
		target, err := f.p.elsewhere(config)
		if err != nil {
			return statusAnswer(apierrors.NewInternalError(err).Status())
		}
		x.target = target
		return forward()
	}}
}

// LoseAnswer lets the request happen and tells the client reply instead of what came
// of it: Reset, Hang or Timeout, say.
func LoseAnswer(reply Reply) Action {
	return Action{name: "LoseAnswer(" + reply.String() + ")", request: func(f *Fault, x *Exchange, forward func() *Answer) *Answer {
		f.begin()
		answer := forward()
		f.done()
		if answer != nil && answer.source != nil {
			answer.source.stop()
		}
		return reply.answer(&x.Request)
	}}
}

// LateCommit tells the client reply at once and sends the request to the API server
// when the fault is released, whatever has happened since. It is for writes.
func LateCommit(reply Reply) Action {
	return Action{name: "LateCommit(" + reply.String() + ")", request: func(f *Fault, x *Exchange, forward func() *Answer) *Answer {
		f.begin()
		ticket := f.ticket()
		f.p.wg.Go(func() {
			defer f.done()
			select {
			case <-ticket:
				forward()
			case <-f.p.ctx.Done():
			}
		})
		return reply.answer(&x.Request)
	}}
}

// HoldRequest keeps the request until the fault is released, and sends it then. If the
// client gives up before, the request dies with it; LateCommit is the other case.
func HoldRequest() Action {
	return Action{name: "HoldRequest", request: func(f *Fault, x *Exchange, forward func() *Answer) *Answer {
		f.begin()
		defer f.done()
		if !f.hold(x.ctx) {
			return nil
		}
		return forward()
	}}
}

// HoldAnswer lets the request happen and keeps its answer until the fault is released,
// while the events of it pass.
func HoldAnswer() Action {
	return Action{name: "HoldAnswer", request: func(f *Fault, x *Exchange, forward func() *Answer) *Answer {
		f.begin()
		answer := forward()
		f.done()
		f.hold(x.ctx)
		return answer
	}}
}

// LagAnswer lets the request happen and keeps its answer for a time, while the events
// of it pass.
func LagAnswer(by time.Duration) Action {
	return Action{name: "LagAnswer", request: func(_ *Fault, x *Exchange, forward func() *Answer) *Answer {
		answer := forward()
		select {
		case <-time.After(by):
		case <-x.ctx.Done():
		}
		return answer
	}}
}

// Before calls a function before the request is sent to the API server, and sends it
// when the function returns. If it kills the client, a write is sent all the same:
// end with Refuse what shall not happen, or use Do.
func Before(call func(x *Exchange)) Action {
	return Action{name: "Before", request: func(_ *Fault, x *Exchange, forward func() *Answer) *Answer {
		call(x)
		return forward()
	}}
}

// InsteadOf calls a function where the API server would be asked, and cuts the client
// off when it returns: for a client that dies right before its request is sent.
func InsteadOf(call func(x *Exchange)) Action {
	return Action{name: "InsteadOf", request: func(_ *Fault, x *Exchange, _ func() *Answer) *Answer {
		call(x)
		return nil
	}}
}

// After calls a function when the API server has answered and before the client is
// told. answer is nil if there was none. A client that the function kills never hears
// of what has happened.
func After(call func(x *Exchange, answer *Answer)) Action {
	return Action{name: "After", request: func(_ *Fault, x *Exchange, forward func() *Answer) *Answer {
		answer := forward()
		call(x, answer)
		return answer
	}}
}
