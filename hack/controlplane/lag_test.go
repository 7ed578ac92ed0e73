package controlplane

// An API server that lags: the reason for EtcdFor.

import (
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"
)

func TestAnAPIServerCutOffFromEtcdServesItsOldCache(t *testing.T) {
	var etcd *valve
	cp := ForTest(t, Options{APIServers: 2, EtcdFor: func(i int, etcdURL string) (string, error) {
		if i == 0 {
			return etcdURL, nil
		}
		u, err := url.Parse(etcdURL)
		if err != nil {
			return "", err
		}
		etcd, err = newValve(t, u.Host)
		return "http://" + etcd.address(), err
	}})
	fresh, lagging := cp.APIServers[0], cp.APIServers[1]
	const cached = configMaps + "/watched?resourceVersion=0"
	value := func(s *APIServer) any {
		return expect(t, 200, s, Admin, http.MethodGet, cached, nil)["data"].(map[string]any)["value"]
	}

	expect(t, 201, fresh, Admin, http.MethodPost, configMaps, configMap("watched", "old"))
	eventually(t, "the second server's cache has the ConfigMap", func() bool {
		code, _, err := ask(t.Context(), t, lagging, Admin, http.MethodGet, cached, nil)
		return err == nil && code == 200
	})
	etcd.shut()
	expect(t, 200, fresh, Admin, http.MethodPatch, configMaps+"/watched", configMap("watched", "new"))
	if got := value(fresh); got != "new" {
		t.Errorf("the fresh server has %v, want new", got)
	}
	if got := value(lagging); got != "old" {
		t.Errorf("the server that is cut off has %v, want old", got)
	}
	etcd.open()
	eventually(t, "the second server has caught up", func() bool { return value(lagging) == "new" })
}

// valve is a TCP proxy that can hold up all that flows through it.
type valve struct {
	listener net.Listener
	flow     sync.RWMutex // held for writing while shut
}

func newValve(t *testing.T, target string) (*valve, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = l.Close() })
	v := &valve{listener: l}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", target)
			if err != nil {
				_ = in.Close()
				continue
			}
			go v.copy(in, out)
			go v.copy(out, in)
		}
	}()
	return v, nil
}

func (v *valve) address() string { return v.listener.Addr().String() }
func (v *valve) shut()           { v.flow.Lock() }
func (v *valve) open()           { v.flow.Unlock() }

func (v *valve) copy(to io.WriteCloser, from io.Reader) {
	defer func() { _ = to.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		v.flow.RLock()
		_, writeErr := to.Write(buffer[:n])
		v.flow.RUnlock()
		if err != nil || writeErr != nil {
			return
		}
	}
}
