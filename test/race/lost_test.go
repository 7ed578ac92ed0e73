package race

import (
	"testing"

	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

// always is a mishap that is the same at each point. The story goes on for a step
// meanwhile.
func always(do faultproxy.Action) func(*run, point) *mishap {
	return func(_ *run, p point) *mishap { return &mishap{rule: p.rule(do), steps: 1} }
}

// P2: the write happens, and the connection is cut before the answer comes.
func TestTheAnswerToEveryWriteIsLost(t *testing.T) {
	everyWrite(t, "answer lost", strict, always(faultproxy.LoseAnswer(faultproxy.Reset())))
}

// P2: the write happens, and the answer is a timeout.
func TestTheAnswerToEveryWriteIsATimeoutAndItHappens(t *testing.T) {
	everyWrite(t, "504, done", strict, always(faultproxy.LoseAnswer(faultproxy.Timeout())))
}

// P3: the request is lost on its way to the API server.
func TestEveryWriteIsLostOnItsWay(t *testing.T) {
	everyWrite(t, "request lost", strict, always(faultproxy.Refuse(faultproxy.Reset())))
}

// P4: the client is told that the connection broke, and the write happens a little later,
// as late as the guards allow for.
func TestEveryWriteHappensLate(t *testing.T) {
	everyWrite(t, "write late", strict, always(faultproxy.LateCommit(faultproxy.Reset())))
}

// P4: the write happens when all else is over: much later than the API server was told to
// give it up. No guard can wait for that, so the conditions of the writes have to do. A
// created Pod is one too many and goes. A hand-out fails if its Pod has another owner by
// then; if the claim was given another Pod meanwhile it has two for a moment, of which its
// status names the first, and nobody is told of the second, which goes. Whatever else it is
// comes too late.
func TestEveryWriteHappensWhenAllIsOver(t *testing.T) {
	forgiving := func(points []point) history.Terms {
		var terms history.Terms
		for _, p := range points {
			switch p.verb {
			case "create":
				terms.Excess++
			case "patch":
				terms.Overlap = overlap
			}
		}
		return terms
	}
	everyWrite(t, "write much too late", forgiving, func(_ *run, p point) *mishap {
		return &mishap{rule: p.rule(faultproxy.LateCommit(faultproxy.Timeout())), until: allIsOver}
	})
}
