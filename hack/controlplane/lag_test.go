package controlplane

// An API server that lags: what it answers while it is cut off from etcd.

import (
	"context"
	"net/http"
	"testing"
	"time"
)

func TestAnAPIServerCutOffFromEtcdServesItsOldCache(t *testing.T) {
	cp := ForTest(t, Options{APIServers: 2, EtcdLinks: true})
	fresh, lagging := cp.APIServers[0], cp.APIServers[1]
	const watched = configMaps + "/watched"
	value := func(s *APIServer) any {
		return expect(t, 200, s, Admin, http.MethodGet, watched+"?resourceVersion=0", nil)["data"].(map[string]any)["value"]
	}
	for name, cut := range map[string]func(){"stalled": lagging.EtcdLink.Stall, "refused": lagging.EtcdLink.Refuse} {
		t.Run(name, func(t *testing.T) {
			expect(t, 201, fresh, Admin, http.MethodPost, configMaps, configMap("watched", "old"))
			eventually(t, "the second server's cache has the ConfigMap", func() bool {
				code, object, err := ask(t.Context(), t, lagging, Admin, http.MethodGet, watched+"?resourceVersion=0", nil)
				return err == nil && code == 200 && object["data"].(map[string]any)["value"] == "old"
			})
			cut()
			expect(t, 200, fresh, Admin, http.MethodPatch, watched, configMap("watched", "new"))
			if got := value(fresh); got != "new" {
				t.Errorf("the fresh server has %v, want new", got)
			}
			if got := value(lagging); got != "old" {
				t.Errorf("the server that is cut off has %v, want old", got)
			}
			for what, query := range map[string]string{"the newest": "", "a list of the newest": "?fieldSelector=metadata.name=watched"} {
				path := watched
				if query != "" {
					path = configMaps + query
				}
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				if code, object, err := ask(ctx, t, lagging, Admin, http.MethodGet, path, nil); err == nil && code < 500 {
					t.Errorf("asked for %s, the server that is cut off answered %d: %v", what, code, object)
				}
			}
			if err := lagging.EtcdLink.Restore(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the second server has caught up", func() bool { return value(lagging) == "new" })
			expect(t, 200, fresh, Admin, http.MethodDelete, watched, nil)
		})
	}
}
