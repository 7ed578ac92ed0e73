package faultproxy

// Answers, and actions on their bytes.

import (
	"context"
	"net/http"
)

// Answer is what a client is told.
type Answer struct {
	Code   int
	Header http.Header
	// Body is whole. A watch has none: its events come later.
	Body []byte

	source *source // of a watch's events
	hang   bool
	// The body is written up to here, and the rest never (cut), or when the fault
	// is released (ticket).
	pauseAt int
	cut     bool
	ticket  <-chan struct{}
}

// write writes an answer that isn't a watch's.
func (a *Answer) write(ctx context.Context, w http.ResponseWriter) {
	w.WriteHeader(a.Code)
	first := len(a.Body)
	if a.cut || a.ticket != nil {
		first = min(a.pauseAt, first)
	}
	// Errors of writing: the client has gone, and nobody is left to tell.
	_, _ = w.Write(a.Body[:first])
	if !a.cut && a.ticket == nil {
		return
	}
	_ = http.NewResponseController(w).Flush()
	if a.cut {
		panic(http.ErrAbortHandler)
	}
	select {
	case <-a.ticket:
		_, _ = w.Write(a.Body[first:])
	case <-ctx.Done():
		panic(http.ErrAbortHandler)
	}
}

// StallBody sends the first n bytes of the answer's body and the rest when the fault
// is released: a list that stops in the midst. Of a watch, use HoldStream with Skip.
func StallBody(n int) Action {
	return Action{name: "StallBody", request: func(f *Fault, _ *Exchange, forward func() *Answer) *Answer {
		answer := forward()
		if answer != nil {
			answer.pauseAt, answer.ticket = n, f.ticket()
		}
		return answer
	}}
}

// CutBody sends the first n bytes of the answer's body and cuts the client off.
func CutBody(n int) Action {
	return Action{name: "CutBody", request: func(_ *Fault, _ *Exchange, forward func() *Answer) *Answer {
		answer := forward()
		if answer != nil {
			answer.pauseAt, answer.cut = n, true
		}
		return answer
	}}
}
