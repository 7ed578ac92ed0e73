package main

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
)

// statusInterval is the least time between two writes of a pool's status that tell of
// nothing but new counts. Every Pod that becomes Ready is a new count: a pool of 500 that
// fills would have its status written 500 times, and everybody who watches it woken. An
// autoscaler looks every 15 s, and a person doesn't notice a second.
const statusInterval = time.Second

// pace remembers when the status of each pool was last written. It is safe for concurrent
// use. What it remembers is lost with the process, which costs one write a pool. Make it
// with newPace.
type pace struct {
	mu      sync.Mutex
	written map[cache.ObjectName]statusWrite
}

// statusWrite is one write of the status of the pool with that UID.
type statusWrite struct {
	uid types.UID
	at  time.Time
}

func newPace() *pace { return &pace{written: map[cache.ObjectName]statusWrite{}} }

// putOff returns for how long new counts of a pool have to wait at the time now: 0 if they
// may be written.
func (p *pace) putOff(warmPool *v1alpha1.WarmPool, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, ok := p.written[cache.MetaObjectToName(warmPool)]
	if !ok || last.uid != warmPool.UID {
		return 0
	}
	// A clock that was set back must not make them wait for longer.
	return min(max(last.at.Add(statusInterval).Sub(now), 0), statusInterval)
}

// wrote takes in that the status of a pool was written at the time now.
func (p *pace) wrote(warmPool *v1alpha1.WarmPool, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.written[cache.MetaObjectToName(warmPool)] = statusWrite{warmPool.UID, now}
}

// forget takes in that there is no pool of this name any more.
func (p *pace) forget(key cache.ObjectName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.written, key)
}
