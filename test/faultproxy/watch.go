package faultproxy

// One watch that passes through the proxy.

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// source is where the events of a watch come from.
type source struct {
	framing framing
	// run calls emit for each event until there is no more, ctx ends, or emit
	// returns false. It closes what it has opened. The error is nil if the watch
	// came to an orderly end.
	run func(ctx context.Context, emit func(*Event) bool) error
	// stop frees a source that isn't run.
	stop func()
}

// upstreamEvents are the events that the API server sends.
func upstreamEvents(response *http.Response) (*source, error) {
	framing, err := newFraming(response.Header.Get("Content-Type"), response.Body)
	if err != nil {
		return nil, err
	}
	s := &source{framing: framing, stop: sync.OnceFunc(func() { _ = response.Body.Close() })}
	s.run = func(_ context.Context, emit func(*Event) bool) error {
		defer s.stop()
		for {
			frame, err := framing.read()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			event, err := framing.decode(frame)
			if err != nil {
				// No event can be told from another any more, and every fault
				// would be a lie.
				panic(err)
			}
			if !emit(event) {
				return nil
			}
		}
	}
	return s, nil
}

// stream is a watch that is open at the client.
type stream struct {
	p      *Proxy
	x      *Exchange
	source *source
	w      http.ResponseWriter

	// Guarded by p.mu:
	ending *Reply // ordered by EndWatches

	// Of the goroutine that serves the stream:
	queue   []*Event // in order; the first one is held
	parked  []*Event // held alone, others overtake them
	initial bool     // the initial events haven't ended
}

// serveWatch passes events on until the watch ends.
func (p *Proxy) serveWatch(w http.ResponseWriter, x *Exchange, a *Answer) {
	s := &stream{p: p, x: x, source: a.source, w: w, initial: x.Query.Get("sendInitialEvents") == "true"}
	p.mu.Lock()
	p.streams[s] = struct{}{}
	p.changedLocked()
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.streams, s)
		p.changedLocked()
	}()
	ctx, cancel := context.WithCancel(x.ctx)
	defer cancel()
	// Unbuffered: what isn't taken yet isn't decided on yet.
	events := make(chan *Event)
	p.wg.Go(func() {
		emit := func(e *Event) bool {
			select {
			case events <- e:
				return true
			case <-ctx.Done():
				return false
			}
		}
		err := a.source.run(ctx, emit)
		emit(&Event{last: true, broken: err != nil})
	})
	defer a.source.stop() // ends a read that waits for the API server
	w.WriteHeader(a.Code)
	_ = http.NewResponseController(w).Flush()
	s.pass(ctx, events)
}

// pass is the life of the stream: take an event, decide, send what may be sent.
func (s *stream) pass(ctx context.Context, events <-chan *Event) {
	for {
		s.p.mu.Lock()
		changed, ending := s.p.changed, s.ending
		s.p.mu.Unlock()
		if ending != nil {
			s.end(ctx, *ending)
			return
		}
		last, due := s.flush()
		if last != nil && last.broken {
			s.end(ctx, Reset())
		}
		if last != nil {
			return
		}
		select {
		case e := <-events:
			e.Watch = &s.x.Request
			if over := s.take(ctx, e); over {
				return
			}
		case <-due:
		case <-changed:
		case <-ctx.Done():
			panic(http.ErrAbortHandler)
		}
	}
}

// verdict is what an action says about one event.
type verdict struct {
	hold bool // and all behind it
	park bool // this one only
	drop bool
	late time.Duration // and all behind it at least as much
	end  *Reply
}

// take decides on one event. It returns true if that ends the stream.
func (s *stream) take(ctx context.Context, e *Event) (over bool) {
	parked := false
	for _, f := range s.p.standing() {
		if !f.concerns(e) || !f.take(nil) {
			continue
		}
		v := f.rule.Do.event(f, e)
		if v.late > 0 {
			e.due = time.Now().Add(v.late)
		}
		switch {
		case v.drop:
			return false
		case v.end != nil:
			s.end(ctx, *v.end)
			return true
		case v.hold || v.park:
			e.holders = append(e.holders, f)
			parked = v.park
		}
	}
	if parked && !e.last {
		s.parked = append(s.parked, e)
	} else {
		s.queue = append(s.queue, e)
	}
	return false
}

// concerns tells whether the rule is about an event. The end of the stream concerns
// only those that freeze it.
func (f *Fault) concerns(e *Event) bool {
	if f.rule.Do.event == nil {
		return false
	}
	if e.last || f.rule.Do.freezes {
		return f.rule.Do.freezes && f.rule.Match.openWatch(e.Watch)
	}
	return f.rule.Match.event(e)
}

// flush sends what no fault holds any more. It returns the end, if that is reached,
// and else what to wait for if the next event is only late.
func (s *stream) flush() (last *Event, due <-chan time.Time) {
	s.parked = slices.DeleteFunc(s.parked, func(e *Event) bool {
		if s.heldUp(e) {
			return false
		}
		s.send(e)
		return true
	})
	for len(s.queue) > 0 && !s.heldUp(s.queue[0]) {
		e := s.queue[0]
		if wait := time.Until(e.due); wait > 0 {
			return nil, time.After(wait)
		}
		s.queue = s.queue[1:]
		if e.last {
			return e, nil
		}
		s.send(e)
	}
	return nil, nil
}

func (s *stream) heldUp(e *Event) bool {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return slices.ContainsFunc(e.holders, func(f *Fault) bool { return !f.open })
}

// send writes one event and enters it into the log.
func (s *stream) send(e *Event) {
	// Entered first: when the client acts on it, the log has it already.
	s.p.mu.Lock()
	s.p.events = append(s.p.events, Delivery{
		Time:            s.p.clock.Now(),
		Who:             s.x.Who,
		Watch:           s.x.ID,
		Resource:        s.x.GroupResource(),
		Type:            e.Type,
		Namespace:       e.Namespace,
		Name:            e.Name,
		UID:             e.UID,
		ResourceVersion: e.ResourceVersion,
		Initial:         s.initial,
		InitialEnd:      e.InitialEnd,
	})
	s.initial = s.initial && !e.InitialEnd
	s.p.newest = newer(s.p.newest, e.ResourceVersion)
	s.p.changedLocked()
	s.p.mu.Unlock()
	// An error: the client has gone, and ctx ends.
	_, _ = s.w.Write(e.frame)
	_ = http.NewResponseController(s.w).Flush()
}

// end ends the stream; what is held is lost.
func (s *stream) end(ctx context.Context, reply Reply) {
	switch reply.kind {
	case replyClosed:
		return
	case replyHang:
		<-ctx.Done()
	case replyStatus:
		frame, err := s.source.framing.status(reply.status(&s.x.Request))
		if err != nil {
			panic(err) // a Status of our own making
		}
		s.send(&Event{Type: "ERROR", frame: frame})
		return
	case replyReset:
		if s.x.http1 {
			s.x.conn.reset()
		}
	}
	panic(http.ErrAbortHandler)
}

// EndWatches ends all open watches that m chooses, and returns how many: with a
// status, as an ERROR event (Expired makes the client list anew); with Closed, in an
// orderly way; with Reset, at once. Events that were held in them are lost.
func (p *Proxy) EndWatches(m Match, reply Reply) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for s := range p.streams {
		if s.ending == nil && m.openWatch(&s.x.Request) {
			s.ending = &reply
			n++
		}
	}
	p.changedLocked()
	return n
}

// OpenWatches returns the watches that are open now and that m chooses, oldest first.
func (p *Proxy) OpenWatches(m Match) []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.openWatchesLocked(m)
}

func (p *Proxy) openWatchesLocked(m Match) []Request {
	var open []Request
	for s := range p.streams {
		if s.ending == nil && m.openWatch(&s.x.Request) {
			open = append(open, s.x.copy())
		}
	}
	slices.SortFunc(open, func(a, b Request) int { return int(a.ID - b.ID) })
	return open
}

// WaitOpenWatches waits until n watches that m chooses are open.
func (p *Proxy) WaitOpenWatches(ctx context.Context, n int, m Match) error {
	return p.wait(ctx, func() (bool, string) {
		return len(p.openWatchesLocked(m)) >= n, "waiting for open watches " + m.String()
	})
}
